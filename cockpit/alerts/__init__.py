"""Detect alerts, ring the bell, and call hooks."""
