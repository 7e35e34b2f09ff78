"""View 4: pods and events."""
