"""A run's newest model behind HTTP: its weights, what is asked of it, and what answers."""
