"""Fixtures of the tests of training."""

from tests.training.cluster import cluster, shared_ray

__all__ = ["cluster", "shared_ray"]
