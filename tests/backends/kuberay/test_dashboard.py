"""The route to the dashboard through a real API server, to a fake Ray dashboard."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
import yaml

from cockpit.backends.kuberay import dashboard as routes
from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient, KubeError
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.resources.raycluster import RayCluster
from cockpit.model.cluster import ClusterRef, DashboardRoute
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError
from cockpit.sources.ray.http import Http
from tests.backends.kuberay.by_hand import Place

TOKEN = "ray-token-1"
MANIFESTS = Path(__file__).parents[3] / "manifests" / "kubernetes"


@dataclass
class Head:
    """Answers every path, and 401 without the token."""

    token: str = ""
    headers: list[dict[str, str]] = field(default_factory=list)
    port: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        path = lines[0].split()[1]
        pairs = (line.split(": ", 1) for line in lines[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        open_path = path.endswith("/api/authentication_mode")
        if not open_path:
            self.headers.append(headers)
        known = headers.get("x-ray-authorization", "") == f"Bearer {self.token}"
        status = "200 OK" if open_path or known or not self.token else "401 Unauthorized"
        body = b'{"ray_version": "2.60.0"}'
        start = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(start.encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def head_of(place: Place, *, tls: bool = False, token: str = "") -> AsyncIterator[Head]:
    """A head behind the service `demo-head-svc` of the place."""
    space = place.testbed.plane.space
    context = None
    if tls:
        pair = place.testbed.plane.authority.sign("dashboard", hosts=(space.host,))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
    head = Head(token)
    server = await asyncio.start_server(head.answer, space.host, 0, ssl=context)
    head.port = server.sockets[0].getsockname()[1]
    ports = [{"name": "dashboard", "port": 8265, "targetPort": head.port}]
    service = {"metadata": {"name": "demo-head-svc"}, "spec": {"ports": ports}}
    place.ask("POST", place.path("services"), service)
    # The proxy leads to pods only: to an address that a pod of this namespace has.
    pod = "demo-head-aaaaa"
    place.pod(pod, "headgroup", runs=False)
    place.pod_status(pod, phase="Running", podIP=space.host, podIPs=[{"ip": space.host}])
    target = {"kind": "Pod", "name": pod, "namespace": place.namespace}
    subset = {
        "addresses": [{"ip": space.host, "targetRef": target}],
        "ports": [{"name": "dashboard", "port": head.port}],
    }
    endpoints = {"metadata": {"name": "demo-head-svc"}, "subsets": [subset]}
    place.ask("POST", place.path("endpoints"), endpoints)
    scheme = "https:" if tls else ""
    known = f"{place.path('services')}/{scheme}demo-head-svc:8265/proxy/api/authentication_mode"

    def is_there() -> bool:
        try:
            place.ask("GET", known)
        except OSError:
            return False
        return True

    async with server:
        await asyncio.to_thread(place.wait, is_there, "the proxy knows of the head")
        yield head


def secret(place: Place, token: str, method: str = "POST") -> None:
    name = "" if method == "POST" else "demo"
    body = {"metadata": {"name": "demo"}, "stringData": {"auth_token": token}}
    place.ask(method, place.path("secrets", name), body)


async def test_rays_token_travels_in_a_header_of_its_own(place: Place) -> None:
    place.cluster(authOptions={"mode": "token"})
    secret(place, TOKEN)
    async with head_of(place, token=TOKEN) as head, place.backend() as backend:
        route = await backend.dashboard()
        assert TOKEN not in repr(route)
        async with Http(backend.dashboard) as http:
            assert (await http.ask("GET", "/api/version"))["ray_version"] == "2.60.0"
    assert route.via == "service proxy"
    assert head.headers[-1]["x-ray-authorization"] == f"Bearer {TOKEN}"
    assert "authorization" not in head.headers[-1]


async def test_sources_that_ask_at_the_same_time_share_one_search(place: Place) -> None:
    place.cluster(authOptions={"mode": "token"})
    secret(place, TOKEN)
    async with head_of(place, token=TOKEN), place.backend() as backend:
        alone = backend.client.requests
        route = await backend.dashboard()
        alone = backend.client.requests - alone
        before = backend.client.requests
        together = await asyncio.gather(*(backend.dashboard() for _ in range(3)))
        assert [each.base_url for each in together] == [route.base_url] * 3
        assert backend.client.requests - before <= alone
        waiting = asyncio.create_task(backend.dashboard())
        await asyncio.sleep(0)
        waiting.cancel()  # one that ends does not end the search of the others
        assert (await backend.dashboard()).base_url == route.base_url


class Scripted:
    """A client whose Secret is read only once the proxy was tried, which answers `refused`."""

    def __init__(self, refused: CockpitError | None = None) -> None:
        context = KubeContext("prod", "ml", "http://127.0.0.1:1", "user", {}, {})
        self.credentials = Credentials(context)
        self.refused = refused
        self.tried = asyncio.Event()
        self.paths: list[str] = []

    async def text(self, path: str) -> str:
        self.paths.append(path)
        self.tried.set()
        if self.refused is not None:
            raise self.refused
        return ""

    async def get(self, path: str) -> dict[str, dict[str, str]]:
        assert path.endswith("/secrets/demo")
        await self.tried.wait()
        return {"data": {"auth_token": base64.b64encode(TOKEN.encode()).decode()}}


CLUSTER = RayCluster("demo", "ml", "1", 0.0, (), token_secret="demo", head_service="demo-head-svc")


async def searched(client: Scripted, head_pod: routes.HeadPod) -> DashboardRoute:
    dashboards = routes.Dashboards(cast("KubeClient", client))
    async with asyncio.timeout(10):
        return await dashboards.route(CLUSTER, head_pod)


async def no_pod() -> str:
    raise KubeError("pods is forbidden", status=403)


@pytest.mark.parametrize(("name", "tries"), [("demo", 1), ("other", 2)])
async def test_proxy_can_be_tried_before_the_cluster_is_known(name: str, tries: int) -> None:
    client = Scripted()
    dashboards = routes.Dashboards(cast("KubeClient", client))
    dashboards.begin(ClusterRef("kuberay", name, "ml", "prod"))
    async with asyncio.timeout(10):
        await client.tried.wait()
        route = await dashboards.route(CLUSTER, no_pod)
        await dashboards.aclose()
    assert route.via == "service proxy"
    assert len(client.paths) == tries
    assert client.paths[-1].endswith("/services/demo-head-svc:8265/proxy/api/authentication_mode")


async def test_try_that_was_begun_ends_with_the_search() -> None:
    dashboards = routes.Dashboards(cast("KubeClient", Scripted()))
    dashboards.begin(ClusterRef("kuberay", "demo", "ml", "prod"))
    await dashboards.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_token_is_read_while_the_proxy_is_tried() -> None:
    route = await searched(Scripted(), no_pod)
    assert route.headers["X-Ray-Authorization"] == f"Bearer {TOKEN}"
    assert route.via == "service proxy"


async def test_a_refused_proxy_is_followed_by_a_port_forward_and_an_absent_head_is_not() -> None:
    refused = ForbiddenError("you may not", "services/proxy is forbidden", status=403)
    with pytest.raises(UnreachableError, match=r"services/proxy is forbidden.*pods is forbidden"):
        await searched(Scripted(refused), no_pod)
    absent = KubeError('services "demo-head-svc" not found', status=404)
    with pytest.raises(UnreachableError, match="Its head is not up") as raised:
        await searched(Scripted(absent), no_pod)
    assert "pods is forbidden" not in str(raised.value)


async def test_a_token_that_was_renewed_is_read_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "FRESH_S", 0.0)
    place.cluster(authOptions={"mode": "token"})
    secret(place, TOKEN)
    async with (
        head_of(place, token=TOKEN) as head,
        place.backend() as backend,
        Http(backend.dashboard) as http,
    ):
        await http.ask("GET", "/api/version")
        head.token = "ray-token-2"
        secret(place, "ray-token-2", "PUT")
        await http.ask("GET", "/api/version")
    assert head.headers[-1]["x-ray-authorization"] == "Bearer ray-token-2"


async def test_a_dashboard_with_tls_is_reached_through_the_proxy(place: Place) -> None:
    cluster = place.cluster()
    container = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "RAY_DASHBOARD_USE_TLS", "value": "1"}]
    place.ask("PUT", place.path("rayclusters", "demo"), cluster)
    async with head_of(place, tls=True), place.backend() as backend:
        route = await backend.dashboard()
        assert "/services/https:demo-head-svc:8265/proxy" in route.base_url
        async with Http(route) as http:
            assert (await http.ask("GET", "/api/version"))["ray_version"] == "2.60.0"


async def test_a_head_that_is_not_up_is_reported_so(place: Place) -> None:
    place.ready_cluster()
    service = {"metadata": {"name": "demo-head-svc"}, "spec": {"ports": [{"port": 8265}]}}
    place.ask("POST", place.path("services"), service)
    async with place.backend() as backend:
        with pytest.raises(UnreachableError, match="demo"):
            await backend.dashboard()


async def test_a_suspended_cluster_has_no_dashboard(place: Place) -> None:
    place.cluster(suspend=True)
    async with place.backend() as backend:
        with pytest.raises(UnreachableError, match="suspended"):
            await backend.dashboard()


async def test_without_the_right_to_the_secret_the_environments_token_is_taken(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.cluster(authOptions={"mode": "token", "secretName": "theirs"})
    body = {"metadata": {"name": "theirs"}, "data": {"auth_token": _encoded("hidden")}}
    place.ask("POST", place.path("secrets"), body)
    kubeconfig = place.user(
        "cockpit-no-secrets",
        [
            {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]},
        ],
    )
    for variable in ("COCKPIT_RAY_TOKEN", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    async with (
        head_of(place, token="mine") as head,
        place.backend(kubeconfig=kubeconfig, token_secret="theirs") as backend,
    ):
        with pytest.raises(NotAllowedError, match="COCKPIT_RAY_TOKEN"):
            await backend.dashboard()
        monkeypatch.setenv("COCKPIT_RAY_TOKEN", "mine")
        async with Http(backend.dashboard) as http:
            await http.ask("GET", "/api/version")
    assert head.headers[-1]["x-ray-authorization"] == "Bearer mine"


async def test_account_that_resubmits_may_submit_jobs_and_nothing_else(place: Place) -> None:
    """The roles of manifests/kubernetes/components/resubmit, with each kind of its requests."""
    own = yaml.safe_load_all((MANIFESTS / "components/resubmit/account.yaml").read_text())
    shared = yaml.safe_load_all((MANIFESTS / "base/rbac.yaml").read_text())
    roles = {each["metadata"]["name"]: each for each in (*shared, *own) if "rules" in each}
    rules = roles["cockpit-resubmit"]["rules"] + roles["cockpit-ray-token"]["rules"]
    place.cluster(authOptions={"mode": "token"})
    secret(place, TOKEN)
    kubeconfig = place.user("cockpit-resubmit", rules)
    async with head_of(place, token=TOKEN), place.backend(kubeconfig=kubeconfig) as backend:
        able = await backend.capabilities()
        assert {verb for verb, capability in able.items() if capability.allowed} == {"launch"}
        async with Http(backend.dashboard) as http:
            for method, path in (
                *(("GET", "/api/jobs/"), ("POST", "/api/jobs/")),
                ("PUT", "/api/packages/gcs/code.zip"),
            ):
                await http.ask(method, path)
            with pytest.raises(NotAllowedError):
                await http.ask("DELETE", "/api/jobs/one")
        with pytest.raises(NotAllowedError):
            await backend.client.get(place.path("pods"))


async def test_an_explicit_address_is_taken_as_it_is(place: Place) -> None:
    place.cluster(authOptions={"mode": "token"})
    secret(place, TOKEN)
    async with place.backend(dashboard_url="http://bastion:8265/") as backend:
        route = await backend.dashboard()
    assert (route.base_url, route.via) == ("http://bastion:8265", "explicit URL")
    assert route.headers == {"Authorization": f"Bearer {TOKEN}"}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
