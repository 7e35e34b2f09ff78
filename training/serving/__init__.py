"""A run's newest model over HTTP: its weights, the requests, and the server."""
