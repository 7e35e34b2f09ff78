"""View 8: alerts."""
