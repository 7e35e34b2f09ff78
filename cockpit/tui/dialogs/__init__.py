"""Dialogs over a view."""
