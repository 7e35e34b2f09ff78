"""The Kubernetes objects that are read or changed."""
