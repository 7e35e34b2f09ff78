"""Verbs for recordings."""
