"""A chart of curves over time."""
