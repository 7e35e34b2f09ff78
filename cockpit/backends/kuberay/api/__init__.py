"""The Kubernetes API over HTTP: requests, credentials, watches, exec."""
