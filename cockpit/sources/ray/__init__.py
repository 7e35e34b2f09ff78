"""The Ray dashboard: jobs, nodes, Train runs, logs, profiles."""
