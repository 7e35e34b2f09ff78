"""MLflow runs that belong to a watched run."""
