"""View 9: the Kubernetes nodes."""
