"""Pictures with labels, in files that contain many of them."""
