"""Names that a cluster's author writes into its object never choose what its viewers read."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.backends.kuberay.dashboard import Dashboards
from cockpit.backends.kuberay.resources import rayjob
from cockpit.backends.kuberay.resources.event import announce
from cockpit.backends.kuberay.resources.raycluster import ray_cluster
from cockpit.backends.protocol import Change
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from tests.sources.raw_server import RawServer, http

TOKEN = "ray-token"


def answer(head: str) -> bytes:
    path = head.split()[1]
    if "/secrets/" in path:
        data = {"auth_token": base64.b64encode(TOKEN.encode()).decode()}
        return http(200, json.dumps({"data": data}).encode())
    if path.endswith("/api/authentication_mode"):
        return http(200, b"{}")
    if "/rayjobs/" in path:
        status = {"jobDeploymentStatus": "Running", "jobId": "j", "rayClusterName": "../secrets/x"}
        spec = {"clusterSelector": {"ray.io/cluster": "demo"}}
        return http(
            200,
            json.dumps(
                {"metadata": {"name": "j", "uid": "u-j"}, "spec": spec, "status": status}
            ).encode(),
        )
    return http(404, b"{}")


def credentials(server: RawServer) -> Credentials:
    return Credentials(KubeContext("here", "ml", server.url, "u", {}, {}))


@pytest.fixture
async def api() -> AsyncIterator[RawServer]:
    async with RawServer(answer).serve() as server:
        yield server


@pytest.fixture(autouse=True)
def no_token_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("COCKPIT_RAY_TOKEN", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def paths(server: RawServer) -> list[str]:
    return [head.split()[1] for head in server.asked]


def raw(name: str = "demo", secret: str = "", service: str = "demo-head-svc") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": "1"},
        "spec": {"authOptions": {"mode": "token", **({"secretName": secret} if secret else {})}},
        "status": {"head": {"serviceName": service}},
    }


async def token(server: RawServer, cluster: dict[str, Any], allowed: str = "") -> str:
    """Ray's token as sent by the route through the API server."""
    client = KubeClient(credentials(server))

    async def no_head() -> str:
        raise UnreachableError("There is no head pod.")

    routes = Dashboards(client, token_secret=allowed)
    try:
        route = await routes.route(ray_cluster(cluster), no_head)
    finally:
        await routes.aclose()
        await client.aclose()
    return route.headers["X-Ray-Authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize(
    ("name", "secret", "allowed"),
    [
        ("demo", "", ""),
        ("demo", "demo", ""),
        ("demo", "rays-own", "rays-own"),
        ("a" * 20 + "9" + "b" * 49, "r" + "b" * 49, ""),
    ],
)
async def test_secret_of_kuberay_or_of_the_user_is_read(
    api: RawServer, name: str, secret: str, allowed: str
) -> None:
    assert await token(api, raw(name, secret), allowed) == TOKEN
    assert f"/api/v1/namespaces/ml/secrets/{secret or name}" in paths(api)


@pytest.mark.parametrize(
    ("secret", "allowed"),
    [
        ("database-password", ""),
        ("database-password", "rays-own"),
        ("../configmaps/x", ""),
        ("demo/../other", ""),
        ("../configmaps/x", "../configmaps/x"),
        ("demo?watch=1", ""),
    ],
)
async def test_secret_that_only_the_clusters_author_names_is_not_read(
    api: RawServer, secret: str, allowed: str
) -> None:
    with pytest.raises(CockpitError, match=r"Secret"):
        await token(api, raw(secret=secret), allowed)
    assert paths(api) == []


async def test_refused_secret_explains_how_to_allow_it_and_the_users_own_token_is_used(
    api: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotAllowedError, match="--token-secret"):
        await token(api, raw(secret="theirs"))
    monkeypatch.setenv("COCKPIT_RAY_TOKEN", "mine")
    assert await token(api, raw(secret="theirs")) == "mine"


@pytest.mark.parametrize(
    "service",
    ["../pods/x", "demo:443/proxy/x", "a" * 64, "https:demo", "UPPER", "x.y", "-x", "demo?x", "ü"],
)
async def test_head_service_with_an_invalid_name_is_not_asked(api: RawServer, service: str) -> None:
    with pytest.raises(UnreachableError, match="cannot be reached") as raised:
        await token(api, raw(service=service))
    assert "invalid name" in f"{raised.value.why}"
    assert not [path for path in paths(api) if "/services/" in path]


async def test_cluster_name_in_a_rayjobs_status_is_checked(api: RawServer) -> None:
    client = KubeClient(credentials(api))
    ref = ClusterRef("kuberay", "demo", "ml", "here")
    with pytest.raises(UsageError, match="no RayCluster"):
        await rayjob.stop(client, ref, "j", "u-j")
    await client.aclose()
    assert not [path for path in paths(api) if "secrets" in path]
    for name, namespace in (("../x", "ml"), ("demo", "../x"), ("", "ml")):
        with pytest.raises(UsageError):
            KubeRayBackend(credentials(api), ClusterRef("kuberay", name, namespace, "here"))


@pytest.mark.parametrize("name", ["../secrets/x", "../../../../../api/v1/nodes/n", "a b", "%2e%2e"])
async def test_id_of_a_job_that_is_no_name_chooses_no_object_for_the_event(
    api: RawServer, name: str
) -> None:
    client = KubeClient(credentials(api))
    ref = ClusterRef("kuberay", "demo", "ml", "here")
    for kind in ("Job", "RayJob", "RayCluster", "Node"):
        await announce(client, ref, Change("stop", kind, name), "jane")
    await client.aclose()
    assert paths(api) == []
