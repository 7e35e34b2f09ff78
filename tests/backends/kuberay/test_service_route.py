"""Which pod and port a Service leads to. tests/backends/kubernetes/test_exec.py has a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.error_message import refusal
from cockpit.backends.kuberay.api.kubeconfig import read
from cockpit.backends.kuberay.service_route import ServiceName, ServiceRoute
from cockpit.model.error import UnreachableError, UsageError
from tests.backends.kubernetes.clients import written

SERVICES = "/api/v1/namespaces/monitoring/services"


class Api(KubeClient):
    """Answers GETs from `found`, by path; what is not in it does not exist."""

    found: dict[str, Any]
    selectors: list[str]

    async def get(self, path: str, params: Any = None) -> Any:
        if params:
            self.selectors.append(params["labelSelector"])
        if path not in self.found:
            raise refusal(self.credentials, "GET", path, 404, b"{}")
        return self.found[path]


@pytest.fixture
def api(tmp_path: Path) -> Api:
    client = Api(Credentials(read([written(tmp_path / "config", {})]).context()))
    client.selectors = []
    client.found = {
        f"{SERVICES}/grafana": {
            "spec": {
                "selector": {"app": "grafana", "tier": "ui"},
                "ports": [{"port": 80, "targetPort": "web"}, {"port": 3000}],
            }
        },
        "/api/v1/namespaces/monitoring/pods": {
            "items": [pod("old", ready=False), pod("new", ready=True)]
        },
    }
    return client


def pod(name: str, *, ready: bool) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"ports": [{"name": "web", "containerPort": 8443}]}]},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def is_socket(path: str) -> bool:
    return Path(path).is_socket()


@pytest.mark.parametrize(("port", "expected"), [(0, 8443), (80, 8443), (3000, 3000)])
async def test_route_leads_to_a_ready_pod_and_its_target_port(
    api: Api, port: int, expected: int
) -> None:
    service = ServiceRoute(api, ServiceName("monitoring", "grafana", port))
    try:
        route = await service.route()
        assert route.base_url == f"http://new:{expected}"
        assert is_socket(route.socket_path)
        assert api.selectors == ["app=grafana,tier=ui"]
        assert await service.route() == route, "the same port-forward is used again"
    finally:
        await service.aclose()
    assert not is_socket(route.socket_path)


async def test_missing_service_port_and_pod_are_reported(api: Api) -> None:
    with pytest.raises(UsageError, match="There is no Service mlflow in namespace monitoring"):
        await ServiceRoute(api, ServiceName("monitoring", "mlflow")).route()
    with pytest.raises(UsageError, match="has no port 81"):
        await ServiceRoute(api, ServiceName("monitoring", "grafana", 81)).route()
    api.found["/api/v1/namespaces/monitoring/pods"] = {"items": [pod("old", ready=False)]}
    with pytest.raises(UnreachableError, match="has no ready pod"):
        await ServiceRoute(api, ServiceName("monitoring", "grafana")).route()
