"""Places on a real API server."""

from __future__ import annotations

import pytest

from cockpit.backends.kuberay.api import client as api_client
from tests.backends.kuberay.by_hand import Place
from tests.cluster import kwok
from tests.cluster.testbed import Testbed


@pytest.fixture(autouse=True)
def slow_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine needs longer than a person would wait for a connection."""
    monkeypatch.setattr(api_client, "CONNECT_TIMEOUT_S", 60.0)


@pytest.fixture(scope="session")
def simulated_nodes(control_plane: Testbed) -> Testbed:
    """Two nodes with 8 GPUs each, played by KWOK."""
    nodes = control_plane.plane.ask("GET", "/api/v1/nodes")["items"]
    if not any(node["metadata"]["name"] == "sim-0" for node in nodes):
        kwok.add_nodes(control_plane.plane, 2)
    return control_plane


@pytest.fixture
def place(simulated_nodes: Testbed) -> Place:
    return Place.new(simulated_nodes)
