"""Clients of a real API server, straight and through faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cockpit.backends.kuberay.api import client as api_client
from cockpit.backends.kuberay.api.client import KubeClient
from tests.backends.kubernetes.clients import client_of
from tests.backends.kubernetes.faulty_proxy import FaultyProxy
from tests.cluster.testbed import Testbed

NAMESPACE = "client-tests"


@pytest.fixture(autouse=True)
def slow_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine needs longer than a person would wait for a connection."""
    monkeypatch.setattr(api_client, "CONNECT_TIMEOUT_S", 60.0)


@pytest.fixture
def namespace(control_plane: Testbed) -> str:
    return control_plane.namespace(NAMESPACE)


@pytest.fixture
async def client(control_plane: Testbed) -> AsyncIterator[KubeClient]:
    """The administrator's."""
    made = client_of(control_plane.kubeconfig)
    yield made
    await made.aclose()


@pytest.fixture
async def proxy(control_plane: Testbed, tmp_path: Path) -> AsyncIterator[FaultyProxy]:
    async with FaultyProxy(control_plane, tmp_path).serve() as serving:
        yield serving


@pytest.fixture
async def faulty(proxy: FaultyProxy) -> AsyncIterator[KubeClient]:
    """Through `proxy`."""
    made = client_of(proxy.kubeconfig)
    yield made
    await made.aclose()
