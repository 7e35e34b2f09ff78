"""KubeRay's History Server: what is left of RayClusters that were deleted."""
