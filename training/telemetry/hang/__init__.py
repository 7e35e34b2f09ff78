"""The state of a rank without progress: stacks and collectives, on the telemetry stream."""
