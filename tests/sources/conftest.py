from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from cockpit.backends.local import LocalBackend
from cockpit.sources.ray.dashboard import Dashboard
from tests.local_cluster import running_cluster
from tests.sources.fake_dashboard import FakeDashboard


@pytest.fixture
async def fake() -> AsyncIterator[FakeDashboard]:
    async with FakeDashboard().serve() as served:
        yield served


@pytest.fixture
async def dashboard(fake: FakeDashboard) -> AsyncIterator[Dashboard]:
    async with Dashboard(fake.route, timeout_s=60.0) as client:
        yield client


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalBackend]:
    """A head and a worker, for the sources on a real Ray: test_on_ray, then test_train_on_ray."""
    with running_cluster("sources") as backend:
        yield backend


@pytest.fixture
async def ray(cluster: LocalBackend) -> AsyncIterator[Dashboard]:
    async with Dashboard(await cluster.dashboard()) as client:
        yield client
