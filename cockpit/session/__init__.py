"""One watched cluster: its backend, its sources and its store."""
