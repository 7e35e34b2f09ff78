"""The vocabulary: frozen structs for everything that the UI and the verbs show.

Nothing here does I/O or imports another package of cockpit. Times are Unix seconds (`_s`, `at_s`),
sizes are bytes (`_bytes`), shares are 0–100 (`_percent`).
"""
