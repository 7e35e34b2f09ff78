"""The telemetry stream of a run."""
