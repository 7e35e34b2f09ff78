"""The view of Ray Serve."""
