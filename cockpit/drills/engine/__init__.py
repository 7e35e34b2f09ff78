"""Running one drill: inject, measure, undo."""
