"""View 6: drills."""
