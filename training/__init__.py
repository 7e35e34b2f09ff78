"""The reference training jobs and the telemetry that runs inside them.

This package is shipped to the cluster as a job's working directory: it never imports cockpit.
"""
