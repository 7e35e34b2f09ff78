"""The plan of a drill: targets, limits, warnings."""
