"""Fixtures of the tests of training."""

import tempfile
from collections.abc import Iterator

import pytest

from tests.training.cluster import cluster, shared_ray
from tests.training.object_store import s3, s3_server

__all__ = ["cluster", "one_thread", "s3", "s3_server", "shared_ray", "temporary_folder"]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch computes with one thread: idle ones would take CPU from the other processes."""
    import torch  # most modules here do without

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """PyTorch leaves folders of logs and files of errors behind, and MLflow downloaded models."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("temporary"))
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield
