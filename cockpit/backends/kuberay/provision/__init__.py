"""Create a RayCluster and what it needs from the manifests of this repository, and remove it."""
