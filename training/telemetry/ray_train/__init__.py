"""A run's lifecycle, as Ray Train or its own driver reports it."""
