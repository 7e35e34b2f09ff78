"""Verbs that create or check a cluster."""
