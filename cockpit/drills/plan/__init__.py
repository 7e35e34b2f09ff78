"""What a drill will do: targets, limits, warnings."""
