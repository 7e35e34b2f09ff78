"""What can be typed after `:` or into a form."""
