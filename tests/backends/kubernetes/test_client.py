from __future__ import annotations

import asyncio
import base64
import json
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.kuberay.api import client as module
from cockpit.backends.kuberay.api import credentials as credentials_module
from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient, KubeError
from cockpit.model.error import UnreachableError
from tests.backends.kubernetes.clients import admin, client_of, cluster_of, token_of, written
from tests.backends.kubernetes.connect_proxy import connect_proxy
from tests.backends.kubernetes.faulty_proxy import Fault, FaultyProxy, refusal
from tests.cluster.certificates import DAY, Authority
from tests.cluster.testbed import Testbed

NODES = "/api/v1/nodes"


def maps(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"test": "client"}}, "data": data}


async def test_an_object_is_made_read_patched_and_deleted(
    client: KubeClient, namespace: str
) -> None:
    await client.create(maps(namespace), config_map("one", a="1"))
    read = await client.get(maps(namespace, "one"))
    assert read["data"] == {"a": "1"}
    change = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "2"},
    ]
    patched = await client.patch(maps(namespace, "one"), change, kind="json")
    assert patched["data"] == {"a": "2"}
    merged = await client.patch(maps(namespace, "one"), {"data": {"b": "3"}}, kind="merge")
    assert merged["data"] == {"a": "2", "b": "3"}
    await client.delete(maps(namespace, "one"))
    with pytest.raises(KubeError) as caught:
        await client.get(maps(namespace, "one"))
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
    assert client.requests == 6


async def test_a_conflict_reports_it(client: KubeClient, namespace: str) -> None:
    await client.create(maps(namespace), config_map("two"))
    stale = {"metadata": {"resourceVersion": "1"}, "data": {"a": "x"}}
    with pytest.raises(KubeError) as caught:
        await client.patch(maps(namespace, "two"), stale, kind="merge")
    assert caught.value.reason == "Conflict"
    await client.delete(maps(namespace, "two"))


async def test_a_list_comes_in_pages_of_one_version(client: KubeClient, namespace: str) -> None:
    for number in range(5):
        await client.create(maps(namespace), config_map(f"page-{number}"))
    only = {"labelSelector": "test=client"}
    pages = [page async for page in client.pages(maps(namespace), only, limit=2)]
    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert [page.more for page in pages] == [True, True, False]
    assert len({page.resource_version for page in pages}) == 1
    for number in range(5):
        await client.delete(maps(namespace, f"page-{number}"))


async def test_forbidden_request_is_reported_with_verb_and_resource(
    control_plane: Testbed, namespace: str
) -> None:
    client = client_of(control_plane.plane.user_kubeconfig("nobody-in-particular"))
    with pytest.raises(ForbiddenError) as caught:
        await client.get(maps(namespace))
    await client.aclose()
    assert caught.value.status == 403
    assert 'cannot list resource "configmaps"' in caught.value.why
    assert 'User "nobody-in-particular"' in caught.value.why


async def test_a_wrong_token_is_reported_and_not_shown(
    control_plane: Testbed, tmp_path: Path
) -> None:
    client = client_of(written(tmp_path / "config", {"token": "sesame"}, cluster_of(control_plane)))
    with pytest.raises(ForbiddenError, match="rejected your credentials") as caught:
        await client.get(NODES)
    await client.aclose()
    assert caught.value.status == 401
    assert "expired" in caught.value.todo
    assert "sesame" not in str(caught.value)


async def test_an_expired_client_certificate_is_reported(control_plane: Testbed) -> None:
    plane = control_plane.plane
    pair = plane.authority.sign("late", lifetime=-DAY)
    client = client_of(plane.user_kubeconfig("late", pair=pair))
    with pytest.raises(ForbiddenError) as caught:
        await client.get(NODES)
    await client.aclose()
    assert "expired" in caught.value.todo


async def test_a_renewed_client_certificate_is_read_after_a_refusal(
    control_plane: Testbed,
) -> None:
    plane = control_plane.plane
    pair = plane.authority.sign("renewed", ["system:masters"], lifetime=-DAY)
    client = client_of(plane.user_kubeconfig("renewed", pair=pair))
    with pytest.raises(ForbiddenError):
        await client.get(NODES)
    plane.authority.sign("renewed", ["system:masters"])
    assert (await client.get(NODES))["kind"] == "NodeList"
    await client.aclose()


async def test_a_server_of_another_authority_is_not_trusted(
    control_plane: Testbed, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    cluster = cluster_of(control_plane) | {"certificate-authority": str(other.certificate)}
    client = client_of(written(tmp_path / "config", {"token": "t"}, cluster))
    with pytest.raises(UnreachableError, match="cannot be reached") as caught:
        await client.get(NODES)
    await client.aclose()
    assert "certificate-authority" in caught.value.todo


async def test_a_token_of_a_service_account_works(
    control_plane: Testbed, namespace: str, tmp_path: Path
) -> None:
    token = token_of(control_plane, namespace)
    client = client_of(written(tmp_path / "config", {"token": token}, cluster_of(control_plane)))
    with pytest.raises(ForbiddenError) as caught:
        await client.get(maps(namespace))
    await client.aclose()
    assert f"system:serviceaccount:{namespace}:default" in caught.value.why


async def test_a_token_file_that_rotated_is_read_again_within_the_same_request(
    control_plane: Testbed, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("stale")
    client = client_of(
        written(tmp_path / "config", {"tokenFile": str(path)}, cluster_of(control_plane))
    )
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    with pytest.raises(ForbiddenError):
        await client.create(review, body)
    path.write_text(token_of(control_plane, namespace))
    text = await client.create(review, body)
    await client.aclose()
    assert text["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"


async def test_a_renewed_login_does_not_cut_a_stream(
    control_plane: Testbed, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin issues client certificates; the second differs from the first."""
    monkeypatch.setattr(credentials_module, "FRESH_S", 0.0)
    pair = control_plane.plane.authority.sign("plugged", ["system:masters"])
    status = {
        "clientCertificateData": pair.certificate.read_text(),
        "clientKeyData": pair.key.read_text(),
    }
    data = {"apiVersion": "client.authentication.k8s.io/v1", "status": status}
    login = tmp_path / "login"
    login.write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps(data)}\nE\n")
    login.chmod(login.stat().st_mode | stat.S_IXUSR)
    client = client_of(
        written(tmp_path / "config", {"exec": {"command": str(login)}}, cluster_of(control_plane))
    )
    asked = {"watch": "1", "fieldSelector": "metadata.name=seen"}
    async with client.stream(maps(namespace), asked, idle_s=10) as chunks:
        before = client.requests
        client.credentials.forget()
        await client.create(maps(namespace), config_map("seen"))
        assert client.requests == before + 1
        assert b'"ADDED"' in await anext(chunks)
    await client.delete(maps(namespace, "seen"))
    await client.aclose()


@pytest.mark.timed
async def test_address_without_a_listener_is_reported_immediately(tmp_path: Path) -> None:
    client = client_of(written(tmp_path / "config", {}, {"server": "https://127.0.0.1:1"}, "prod"))
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match="prod") as caught:
        await client.get(NODES)
    assert "https://127.0.0.1:1" in caught.value.why
    assert time.monotonic() - begun < 10
    await client.aclose()


async def test_server_without_a_response_is_reported_in_time(
    proxy: FaultyProxy, faulty: KubeClient
) -> None:
    proxy.faults.append(Fault(NODES, stall_after=0))
    impatient = KubeClient(faulty.credentials, timeout_s=0.3)
    with pytest.raises(UnreachableError, match="cannot be reached") as caught:
        await impatient.get(NODES)
    assert "sent nothing" in caught.value.why
    await impatient.aclose()


async def test_a_busy_server_is_asked_again_when_it_reports(
    proxy: FaultyProxy, faulty: KubeClient
) -> None:
    proxy.faults += [
        Fault(NODES, refusal(429, headers="Retry-After: 1\r\n")),
        Fault(NODES, refusal(503, headers="Retry-After: 0\r\n")),
    ]
    begun = time.monotonic()
    assert (await faulty.get(NODES))["kind"] == "NodeList"
    assert time.monotonic() - begun >= 1.0
    assert len(proxy.asked(NODES)) == 3


async def test_a_server_that_stays_busy_is_reported(
    proxy: FaultyProxy, faulty: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.01)
    proxy.faults += [Fault(NODES, refusal(429, b"slow down")) for _ in range(module.WAITS + 1)]
    with pytest.raises(KubeError, match="slow down") as caught:
        await faulty.get(NODES)
    assert caught.value.status == 429


async def test_a_change_that_may_have_been_made_is_not_sent_again(
    proxy: FaultyProxy, faulty: KubeClient, namespace: str
) -> None:
    proxy.faults.append(Fault("POST", refusal(503, headers="Retry-After: 0\r\n")))
    with pytest.raises(KubeError) as caught:
        await faulty.create(maps(namespace), config_map("never"))
    assert caught.value.status == 503
    assert len(proxy.asked("POST")) == 1


async def test_an_answer_that_is_cut_off_is_reported(
    proxy: FaultyProxy, faulty: KubeClient
) -> None:
    proxy.faults.append(Fault("/api/v1/namespaces", cut_after=700))
    with pytest.raises(UnreachableError):
        await faulty.get("/api/v1/namespaces")


async def test_response_of_another_server_than_kubernetes_is_reported(
    proxy: FaultyProxy, faulty: KubeClient
) -> None:
    page = b"<html>log in</html>"
    proxy.faults += [
        Fault(NODES, refusal(200, page)),
        Fault(NODES, refusal(200, b"[]")),
        Fault(NODES, refusal(502, b"\x1b[31mbad gateway\x1b[0m\n")),
    ]
    with pytest.raises(KubeError, match="did not answer as a Kubernetes API server"):
        await faulty.get(NODES)
    with pytest.raises(KubeError, match="did not answer as a Kubernetes API server"):
        await anext(faulty.pages(NODES))
    with pytest.raises(KubeError, match="bad gateway"):
        await faulty.get(NODES)


async def test_a_line_without_end_comes_in_pieces(
    proxy: FaultyProxy, faulty: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINE_BYTES", 1000)
    proxy.faults.append(Fault("/log", refusal(200, b"x" * 200_000 + b"\nend")))
    lines = [line async for line in faulty.lines("/log", {}, idle_s=5)]
    assert lines[-1] == b"end"
    assert b"".join(lines[:-1]) == b"x" * 200_000
    assert len(lines) > 2


async def test_the_proxy_of_the_kubeconfig_is_used(control_plane: Testbed, tmp_path: Path) -> None:
    async with connect_proxy() as (address, asked):
        cluster = cluster_of(control_plane) | {"proxy-url": address}
        client = client_of(written(tmp_path / "config", admin(control_plane), cluster))
        assert (await client.get(NODES))["kind"] == "NodeList"
        await client.aclose()
    assert asked == [control_plane.plane.server.removeprefix("https://")]


async def test_the_proxy_of_the_environment_is_used_unless_the_server_is_excepted(
    control_plane: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = written(tmp_path / "config", admin(control_plane), cluster_of(control_plane))
    async with connect_proxy() as (address, asked):
        monkeypatch.setenv("HTTPS_PROXY", address)
        monkeypatch.setenv("NO_PROXY", "example.com")
        client = client_of(config)
        await client.get(NODES)
        await client.aclose()
        assert len(asked) == 1
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
        client = client_of(config)
        await client.get(NODES)
        await client.aclose()
        assert len(asked) == 1


async def test_a_proxy_that_is_down_is_reported_without_its_password(
    control_plane: Testbed, tmp_path: Path
) -> None:
    cluster = cluster_of(control_plane) | {"proxy-url": "http://jane:sesame@127.0.0.1:1"}
    client = client_of(written(tmp_path / "config", admin(control_plane), cluster))
    with pytest.raises(UnreachableError) as caught:
        await client.get(NODES)
    await client.aclose()
    assert "sesame" not in str(caught.value)


async def test_the_servers_name_in_tls_can_be_another_than_its_address(
    control_plane: Testbed, tmp_path: Path
) -> None:
    cluster = cluster_of(control_plane)
    named = cluster | {"tls-server-name": "kubernetes.default"}
    client = client_of(written(tmp_path / "config", admin(control_plane), named))
    assert (await client.get(NODES))["kind"] == "NodeList"
    await client.aclose()
    wrong = cluster | {"tls-server-name": "elsewhere.example"}
    client = client_of(written(tmp_path / "config", admin(control_plane), wrong))
    with pytest.raises(UnreachableError, match="cannot be reached"):
        await client.get(NODES)
    await client.aclose()


async def test_insecure_skip_tls_verify_trusts_anyone(
    control_plane: Testbed, tmp_path: Path
) -> None:
    cluster = {"server": control_plane.plane.server, "insecure-skip-tls-verify": True}
    client = client_of(written(tmp_path / "config", admin(control_plane), cluster))
    assert (await client.get(NODES))["kind"] == "NodeList"
    await client.aclose()


async def test_certificates_inside_the_kubeconfig_work(
    control_plane: Testbed, tmp_path: Path
) -> None:
    def inside(path: str | Path) -> str:
        return base64.b64encode(Path(path).read_bytes()).decode()

    user = {f"{name}-data": inside(path) for name, path in admin(control_plane).items()}
    authority = control_plane.plane.authority.certificate
    cluster = {
        "server": control_plane.plane.server,
        "certificate-authority-data": inside(authority),
    }
    client = client_of(written(tmp_path / "config", user, cluster))
    assert (await client.get(NODES))["kind"] == "NodeList"
    await client.aclose()


async def test_nothing_stays_open_after_closing(control_plane: Testbed) -> None:
    def sockets() -> set[str]:
        links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return {name for link in links if (name := str(link.readlink())).startswith("socket:")}

    client = client_of(control_plane.kubeconfig)
    before = sockets()
    await asyncio.gather(*(client.get(NODES) for _ in range(5)))
    assert sockets() - before
    await client.aclose()
    assert not sockets() - before  # one of an earlier test may be collected at the same time


def test_a_request_loads_no_more_than_it_needs(control_plane: Testbed) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import read
async def ask():
    context = read([Path({str(control_plane.kubeconfig)!r})]).context()
    client = KubeClient(Credentials(context))
    await client.get({NODES!r})
    await client.aclose()
asyncio.run(ask())
loaded = {{name.split('.')[0] for name in sys.modules}}
print(sorted(loaded & {{'rich', 'click', 'kubernetes', 'websockets'}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
