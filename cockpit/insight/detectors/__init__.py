"""Findings: what is wrong with a run."""
