"""Faults on purpose, and what is measured of them."""
