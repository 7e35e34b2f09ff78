"""Why the run makes no progress, with the stacks of its ranks."""
