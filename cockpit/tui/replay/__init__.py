"""The screen on a recording."""
