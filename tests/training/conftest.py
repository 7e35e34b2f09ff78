"""Fixtures of the tests of training."""

from tests.training.cluster import cluster, shared_ray
from tests.training.object_store import s3, s3_server

__all__ = ["cluster", "s3", "s3_server", "shared_ray"]
