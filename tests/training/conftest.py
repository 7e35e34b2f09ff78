"""Fixtures of the tests of training."""

from collections.abc import Iterator

import pytest

from tests.training.cluster import cluster, shared_ray
from tests.training.object_store import s3, s3_server

__all__ = ["cluster", "one_thread", "s3", "s3_server", "shared_ray"]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch computes with one thread: idle ones would take CPU from the other processes."""
    import torch  # most modules here do without

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
