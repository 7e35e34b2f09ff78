"""Prometheus: earlier curves of a run, and DCGM counters."""
