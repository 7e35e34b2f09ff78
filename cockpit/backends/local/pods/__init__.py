"""The pods of a local cluster: their processes, logs and readiness."""
