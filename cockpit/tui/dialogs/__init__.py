"""What lies over a view and wants an answer."""
