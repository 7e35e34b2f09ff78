"""Act on a hang or a repeated failure by a policy."""
