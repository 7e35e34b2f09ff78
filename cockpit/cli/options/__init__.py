"""From flags, environment and profile to a cluster."""
