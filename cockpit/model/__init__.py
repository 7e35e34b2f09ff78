"""The vocabulary: frozen structs for everything that the screens and commands speak of.

Nothing here does I/O or imports another package of ours. Times are Unix seconds (`_s`, `at_s`),
sizes are bytes (`_bytes`), shares are 0–100 (`_percent`).
"""
