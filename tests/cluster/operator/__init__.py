"""A fake KubeRay operator: creates pods, services and a status for RayClusters and RayJobs.

It matches recordings of the real one (tests/cluster/recordings). Unsupported, and not needed here:
GCS fault tolerance, mutual TLS, ingress, upgrades, RayService.
"""
