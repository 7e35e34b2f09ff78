"""The training loop, and the state that it needs to resume exactly."""
