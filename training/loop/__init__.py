"""The training loop, and what it needs to go on exactly where it was."""
