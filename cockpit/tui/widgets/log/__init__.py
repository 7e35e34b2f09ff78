"""A log view."""
