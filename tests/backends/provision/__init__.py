"""Creating and removing a cluster on Kubernetes."""
