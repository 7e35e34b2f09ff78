"""Pure functions of the store: what the numbers mean."""
