from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cockpit.sources.ray.dashboard import Dashboard
from tests.sources.fake_dashboard import FakeDashboard


@pytest.fixture
async def fake() -> AsyncIterator[FakeDashboard]:
    async with FakeDashboard().serve() as served:
        yield served


@pytest.fixture
async def dashboard(fake: FakeDashboard) -> AsyncIterator[Dashboard]:
    async with Dashboard(fake.route, timeout_s=2.0) as client:
        yield client
