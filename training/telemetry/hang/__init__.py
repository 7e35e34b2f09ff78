"""What a rank does while it makes no progress: stacks and collectives, on its own stream."""
