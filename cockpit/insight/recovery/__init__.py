"""How a run recovers from a fault, measured from events."""
