"""Bounded HTTP answers."""
