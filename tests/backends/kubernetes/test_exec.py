"""Commands in a real container, and a port of it."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from cockpit.backends.kuberay.api import exec as module
from cockpit.backends.kuberay.api.client import ForbiddenError, KubeClient, KubeError
from cockpit.backends.kuberay.api.exec import RemoteTerminal, attach, run
from cockpit.backends.kuberay.api.port_forward import PortForward
from cockpit.backends.kuberay.service_route import ServiceName, ServiceRoute
from cockpit.backends.private_proxy import PrivateProxy
from cockpit.backends.protocol import ExecResult
from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import CockpitError, UnreachableError
from tests.backends.kubernetes.clients import admin, client_of, cluster_of, token_of, written
from tests.backends.kubernetes.connect_proxy import connect_proxy
from tests.cluster.node import ROOT_IMAGE
from tests.cluster.testbed import Testbed

POD, CONTAINER, PORT = "target", "main", 8000
PYTHON_BYTES = Path("/usr/bin/python3").stat().st_size
SERVER = f"""
import http.server, os
os.chdir("/usr")
http.server.HTTPServer(("", {PORT}), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": CONTAINER,
                    "image": ROOT_IMAGE,
                    "imagePullPolicy": "Never",
                    "command": ["/usr/bin/python3", "-c", SERVER],
                    "volumeMounts": [{"name": "usr", "mountPath": "/usr", "readOnly": True}],
                    "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
                }
            ],
            "volumes": [{"name": "usr", "hostPath": {"path": "/usr"}}],
        },
    }


def is_ready(text: Any) -> bool:
    conditions = text["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def start(testbed: Testbed, namespace: str, name: str) -> None:
    """Returns when it serves."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    testbed.plane.ask("POST", pods, pod(name))
    deadline = time.monotonic() + 60
    while not is_ready(text := testbed.plane.ask("GET", f"{pods}/{name}")):
        assert time.monotonic() < deadline, text["status"]
        time.sleep(0.1)


@pytest.fixture(scope="module")
def place(kubernetes: Testbed) -> Iterator[str]:
    """The namespace of a pod that runs, serves HTTP and has a shell."""
    namespace = kubernetes.namespace("exec-tests")
    start(kubernetes, namespace, POD)
    yield namespace
    kubernetes.plane.ask("DELETE", f"/api/v1/namespaces/{namespace}")


@pytest.fixture
async def client(kubernetes: Testbed) -> AsyncIterator[KubeClient]:
    made = client_of(kubernetes.kubeconfig)
    yield made
    await made.aclose()


async def here(client: KubeClient, place: str, *argv: str) -> ExecResult:
    return await run(client, place, POD, CONTAINER, argv)


@asynccontextmanager
async def attached(
    client: KubeClient, place: str, *argv: str, tty: bool, **size: int
) -> AsyncIterator[RemoteTerminal]:
    terminal = await attach(client, place, POD, CONTAINER, argv, tty=tty, **size)
    try:
        async with asyncio.timeout(20):
            yield terminal
    finally:
        await terminal.aclose()


async def all_of(terminal: RemoteTerminal) -> bytes:
    return b"".join([chunk async for chunk in terminal.output()])


async def test_a_command_gives_both_outputs_and_its_exit_code(
    client: KubeClient, place: str
) -> None:
    script = "echo out; echo err >&2; exit 7"
    assert await here(client, place, "sh", "-c", script) == ExecResult(7, "out\n", "err\n")


async def test_arguments_arrive_as_they_are(client: KubeClient, place: str) -> None:
    text = await here(client, place, "printf", "%s|", "two words", "a&b=c", "ü", "$HOME", "")
    assert text.stdout == "two words|a&b=c|ü|$HOME||"


async def test_without_a_container_the_pods_own_is_taken(client: KubeClient, place: str) -> None:
    assert (await run(client, place, POD, "", ["echo", "x"])).stdout == "x\n"


async def test_much_output_arrives_whole(client: KubeClient, place: str) -> None:
    text = await here(client, place, "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' a")
    assert text.stdout == "a" * 3_000_000


async def test_more_output_than_is_sensible_is_left(
    client: KubeClient, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OUTPUT_LIMIT_BYTES", 1 << 20)
    with pytest.raises(CockpitError, match="was left"):
        # Bounded, since a command continues in its pod after its client has ended.
        await here(client, place, "head", "-c", "64M", "/dev/zero")


async def test_a_command_killed_by_a_signal_ends_as_in_a_shell(
    client: KubeClient, place: str
) -> None:
    assert (await here(client, place, "sh", "-c", "kill -9 $$")).exit_code == 137


@pytest.mark.parametrize("command", ["no-such-command", "/no/such/file"])
async def test_a_command_that_is_not_there_is_127(
    client: KubeClient, place: str, command: str
) -> None:
    text = await here(client, place, command)
    assert text.exit_code == 127
    assert command in text.stderr
    assert "OCI" not in text.stderr


@pytest.mark.parametrize("command", ["/usr", "/usr/share/doc/bash/copyright"])
async def test_a_command_that_cannot_be_run_is_126(
    client: KubeClient, place: str, command: str
) -> None:
    assert (await here(client, place, command)).exit_code == 126


async def test_a_pod_or_container_that_is_not_there_is_reported(
    client: KubeClient, place: str
) -> None:
    with pytest.raises(KubeError, match='"no-such-pod" not found') as caught:
        await run(client, place, "no-such-pod", "", ["true"])
    assert caught.value.status == 404
    with pytest.raises(KubeError, match="no-such-container"):
        await run(client, place, POD, "no-such-container", ["true"])
    with pytest.raises(KubeError):
        await run(client, place, f"../pods/{POD}", "", ["true"])


async def test_without_the_right_it_is_reported(kubernetes: Testbed, place: str) -> None:
    client = client_of(kubernetes.plane.user_kubeconfig("nobody-in-particular"))
    with pytest.raises(ForbiddenError, match="You do not have this permission") as caught:
        await here(client, place, "true")
    assert "pods/exec" in caught.value.why
    await client.aclose()


async def test_exec_uses_the_proxy_of_the_kubeconfig(
    kubernetes: Testbed, place: str, tmp_path: Path
) -> None:
    async with connect_proxy() as (address, asked):
        cluster = cluster_of(kubernetes) | {"proxy-url": address}
        client = client_of(written(tmp_path / "config", admin(kubernetes), cluster))
        assert (await here(client, place, "echo", "x")).stdout == "x\n"
        async with PortForward(client, place, POD, PORT) as forward:
            transport = httpx.AsyncHTTPTransport(uds=forward.socket_path)
            async with httpx.AsyncClient(transport=transport) as http:
                assert (await http.get("http://pod/lib/")).status_code == 200
        await client.aclose()
    assert len(asked) == 2


async def test_a_token_that_rotated_is_read_again_within_the_same_request(
    kubernetes: Testbed, place: str, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("stale")
    user = {"tokenFile": str(path)}
    client = client_of(written(tmp_path / "config", user, cluster_of(kubernetes)))
    with pytest.raises(ForbiddenError, match="rejected your credentials"):
        await here(client, place, "true")
    path.write_text(token_of(kubernetes, place))
    with pytest.raises(ForbiddenError, match="You do not have this permission") as caught:
        await here(client, place, "true")
    assert f"system:serviceaccount:{place}:default" in caught.value.why
    await client.aclose()


async def test_a_server_that_agrees_to_no_protocol_is_reported(
    client: KubeClient, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "V5", "v9.channel.k8s.io")
    monkeypatch.setattr(module, "V4", "v8.channel.k8s.io")
    with pytest.raises(KubeError, match="over a WebSocket"):
        await here(client, place, "true")


async def test_older_server_uses_protocol_v4(
    client: KubeClient, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "V5", "v4.channel.k8s.io")
    assert (await here(client, place, "sh", "-c", "echo x; exit 2")).exit_code == 2
    async with attached(client, place, "cat", tty=True) as terminal:
        await terminal.write(b"hello\n")
        await terminal.close_input()
        assert b"hello" in await all_of(terminal)


async def test_an_unreachable_server_is_reported(client: KubeClient, place: str) -> None:
    client.credentials.server = "https://127.0.0.1:1"
    with pytest.raises(UnreachableError, match="cannot be reached"):
        await here(client, place, "true")


async def test_input_is_carried_in_and_ended(client: KubeClient, place: str) -> None:
    async with attached(client, place, "sh", "-c", "wc -c; exit 3", tty=False) as terminal:
        await terminal.write(b"x" * 200_000)
        await terminal.close_input()
        assert await all_of(terminal) == b"200000\n"
        assert await terminal.wait() == 3


async def test_input_and_output_go_both_ways_at_once(client: KubeClient, place: str) -> None:
    async with attached(client, place, "cat", tty=False) as terminal:
        reading = asyncio.create_task(all_of(terminal))
        for number in range(200):
            await terminal.write(f"{number:04}\n".encode() * 100)
        await terminal.close_input()
        assert len(await reading) == 200 * 500
        assert await terminal.wait() == 0


async def test_a_terminal_has_a_size_that_changes(client: KubeClient, place: str) -> None:
    # The command may begin before its terminal has a size: kubectl's do as well.
    script = (
        "until [ \"$(stty size)\" = '30 100' ]; do sleep 0.02; done;"
        " trap 'stty size; exit 5' WINCH; echo set; while :; do sleep 0.05; done"
    )
    async with attached(
        client, place, "sh", "-c", script, tty=True, rows=30, columns=100
    ) as terminal:
        seen = b""
        async for chunk in terminal.output():
            seen += chunk
            if b"set" in chunk:
                await terminal.resize(11, 22)
        assert seen.split() == [b"set", b"11", b"22"]
        assert await terminal.wait() == 5


async def test_ctrl_d_ends_the_input_of_a_terminal(client: KubeClient, place: str) -> None:
    async with attached(client, place, "cat", tty=True) as terminal:
        await terminal.write(b"hello\n")
        await terminal.close_input()
        assert b"hello\r\nhello\r\n" in await all_of(terminal)
        assert await terminal.wait() == 0


async def test_a_shell_that_is_not_there_reports_it_in_the_terminal(
    client: KubeClient, place: str
) -> None:
    async with attached(client, place, "no-such-shell", tty=True) as terminal:
        assert b"executable file not found" in await all_of(terminal)
        assert await terminal.wait() == 127


async def test_waiting_does_not_need_a_reader(client: KubeClient, place: str) -> None:
    async with attached(client, place, "head", "-c", "5000000", "/dev/zero", tty=False) as one:
        assert await one.wait() == 0
        assert await one.wait() == 0


async def test_unread_output_is_not_buffered(client: KubeClient, place: str) -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    async with attached(client, place, "head", "-c", "1G", "/dev/zero", tty=False) as terminal:
        output = terminal.output()
        await anext(output)
        before = resident_bytes()
        async with asyncio.timeout(30):
            while terminal._opened.transport.is_reading():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert resident_bytes() - before < 16 << 20
        assert await anext(output)


async def test_a_connection_that_breaks_is_not_taken_for_an_end(
    client: KubeClient, place: str
) -> None:
    async with attached(client, place, "sleep", "60", tty=False) as terminal:
        terminal._opened.transport.abort()
        with pytest.raises(UnreachableError, match="broke while the command ran"):
            await terminal.wait()


async def test_a_pod_that_goes_ends_its_terminals(
    kubernetes: Testbed, client: KubeClient, place: str
) -> None:
    await asyncio.to_thread(start, kubernetes, place, "doomed")
    argv = ["sh", "-c", "echo up; exec sleep 60"]
    terminal = await attach(client, place, "doomed", CONTAINER, argv, tty=False)
    output = terminal.output()
    async with asyncio.timeout(30):
        assert await anext(output) == b"up\n"  # otherwise the pod may end first
        await client.delete(f"/api/v1/namespaces/{place}/pods/doomed", {"gracePeriodSeconds": 0})
        assert b"".join([chunk async for chunk in output]) == b""
        assert await terminal.wait() == 137
    await terminal.aclose()


async def test_a_port_of_the_pod_is_reached_through_a_socket_of_ours(
    client: KubeClient, place: str
) -> None:
    async with PortForward(client, place, POD, PORT) as forward:
        transport = httpx.AsyncHTTPTransport(uds=forward.socket_path)
        async with httpx.AsyncClient(transport=transport, base_url="http://pod") as http:
            assert "lib/" in (await http.get("/")).text
            answers = await asyncio.gather(*(http.get("/bin/python3") for _ in range(3)))
            assert [len(answer.content) for answer in answers] == [PYTHON_BYTES] * 3
        assert forward.error is None


async def test_page_of_a_service_is_opened_through_the_private_link(
    client: KubeClient, place: str, kubernetes: Testbed
) -> None:
    """The chain of `cockpit open grafana`: Service, ready pod, port-forward, proxy, browser."""
    port = {"port": 3000, "targetPort": PORT}
    body = {"metadata": {"name": "web"}, "spec": {"selector": {"app": POD}, "ports": [port]}}
    kubernetes.plane.ask("POST", f"/api/v1/namespaces/{place}/services", body)
    service, loop = ServiceRoute(client, ServiceName(place, "web")), asyncio.get_running_loop()

    def route() -> DashboardRoute:
        return asyncio.run_coroutine_threadsafe(service.route(), loop).result(20)

    def pages(proxy: PrivateProxy) -> list[httpx.Response]:
        with httpx.Client() as browser:
            links = (proxy.link, f"http://127.0.0.1:{proxy.port}/lib/")
            return [httpx.get(links[1]), *(browser.get(link, timeout=20) for link in links)]

    try:
        with PrivateProxy(route, keep_host=True).running() as proxy:
            refused, first, page = await asyncio.to_thread(pages, proxy)
    finally:
        await service.aclose()
    assert [answer.status_code for answer in (refused, first, page)] == [403, 303, 200]
    assert "python3" in page.text


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A socket's path ends at 107 characters, and those of pytest are long."""
    with TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


async def test_the_socket_is_private_and_is_removed_with_the_forward(
    client: KubeClient, place: str, monkeypatch: pytest.MonkeyPatch, short_folder: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_folder))
    async with PortForward(client, place, POD, PORT) as forward:
        path = Path(forward.socket_path)
        assert path.is_relative_to(short_folder)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET /lib/ HTTP/1.0\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 200")
    assert not path.parent.exists()
    while await reader.read(65536):
        pass  # the data so far; then the connection is closed
    writer.close()


async def test_a_folder_with_a_long_name_is_not_used_for_the_socket(
    client: KubeClient, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    async with PortForward(client, place, POD, PORT) as forward:
        assert not forward.socket_path.startswith(str(deep))


@pytest.mark.parametrize(
    ("name", "port", "why"), [(POD, 81, "refused"), ("no-such-pod", PORT, "not found")]
)
async def test_a_port_that_cannot_be_reached_is_reported(
    client: KubeClient, place: str, name: str, port: int, why: str
) -> None:
    async with PortForward(client, place, name, port) as forward:
        transport = httpx.AsyncHTTPTransport(uds=forward.socket_path)
        async with httpx.AsyncClient(transport=transport) as http:
            with pytest.raises(httpx.TransportError):
                await http.get("http://pod/")
        assert forward.error is not None
        assert why in str(forward.error)
