from __future__ import annotations

from collections.abc import Iterator

import pytest

from cockpit.backends.local import LocalBackend
from tests.local_cluster import ONE_WORKER, running_cluster


@pytest.fixture(scope="package")
def one_worker() -> Iterator[LocalBackend]:
    """A head and a worker, for test_address, and then for test_local_cluster, which kills both."""
    with running_cluster("contract", ONE_WORKER) as backend:
        yield backend
