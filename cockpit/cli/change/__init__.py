"""Verbs that change a cluster."""
