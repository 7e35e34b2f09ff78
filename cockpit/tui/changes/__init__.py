"""Changes from the UI: confirm, do it, report the result."""
