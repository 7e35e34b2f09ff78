"""Checks of the pods that a job would use, before it is launched."""
