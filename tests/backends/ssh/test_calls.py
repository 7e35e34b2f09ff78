"""The agent on a host, over a real sshd, with a program in place of Ray."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from importlib.resources import files
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from cockpit.backends.local.pods.process import identify, is_alive
from cockpit.backends.protocol import ExecResult
from cockpit.backends.ssh import calls
from cockpit.backends.ssh.calls import MODULES, Agent, agent_text
from cockpit.backends.ssh.connection import Connection
from cockpit.backends.ssh.description import Host, Hosts
from cockpit.backends.ssh.node import start_request
from cockpit.backends.ssh.state import ClusterRecord, HostState, PodState, Token, host_state
from cockpit.model.error import CockpitError, ReplacedError, UnreachableError, UsageError
from tests.local_cluster import until
from tests.ssh_cluster import description, sleeping_python
from tests.sshd import Sshd

CLUSTER = ClusterRecord("c", "0123456789abcdef", 0.0, (), "fast", (1, 2, 3))


def test_call_does_not_import_asyncio() -> None:
    """It would take a third of the CPU time of each call, on each host."""
    _, *rest = Agent(Answering(None), "lab").argv("status", {"follow": False})
    argv = [sys.executable, "-X", "importtime", *rest]
    done = subprocess.run(argv, input=b"", capture_output=True, check=True)
    assert b"subprocess" in done.stderr
    assert b"asyncio" not in done.stderr


def test_text_needs_the_standard_library_alone_and_the_syntax_of_python_3_9() -> None:
    tree = ast.parse(agent_text(), feature_version=(3, 9))
    statements = [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    imported = {
        name.partition(".")[0]
        for one in statements
        for name in (
            [alias.name for alias in one.names]
            if isinstance(one, ast.Import)
            else [one.module or ""]
        )
    }
    assert imported <= sys.stdlib_module_names


def test_modules_of_the_text_define_no_name_twice_and_follow_what_they_import() -> None:
    sent: dict[str, str] = {}
    for path in MODULES:
        module = f"cockpit.{path.removesuffix('.py').replace('/', '.')}"
        for one in ast.parse((files("cockpit") / path).read_text(encoding="utf-8")).body:
            if isinstance(one, ast.ImportFrom) and str(one.module).startswith("cockpit."):
                assert {sent[alias.name] for alias in one.names} == {one.module}, path
                assert not any(alias.asname for alias in one.names), path
            for name in _defined(one):
                assert sent.setdefault(name, module) == module, name


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


class Answering(Connection):
    """A host with this output for each call; None: it never answers."""

    def __init__(self, output: str | None) -> None:
        super().__init__(Host("gpu-1", "10.0.0.1", "gpu-1", "gpu"), Path("/none"), "c")
        self._answer = output

    async def run(self, argv: Sequence[str], *, data: bytes = b"") -> ExecResult:
        if self._answer is None:
            await asyncio.Event().wait()
        return ExecResult(0, self._answer or "", "")


@pytest.mark.parametrize("output", ["", "{}", '{"token": 3}', '{"token": ["x"]}', "[]", "not JSON"])
async def test_answer_of_another_kind_is_an_error(output: str) -> None:
    with pytest.raises(UnreachableError, match="The answer of host gpu-1"):
        await Agent(Answering(output), "lab").ask_for(Token, "token", {})


async def test_agent_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ANSWER_S", 0.1)
    with pytest.raises(UnreachableError, match="The agent on host gpu-1 does not answer"):
        await Agent(Answering(None), "lab").ask("facts", {})


@pytest.fixture
def hosts(sshd: Sshd, tmp_path: Path) -> Hosts:
    return description([sshd], python=sleeping_python(tmp_path), replicas=0)


@pytest.fixture
async def agent(hosts: Hosts, folder: Path) -> AsyncIterator[Agent]:
    connection = Connection(hosts.head, folder, "c", hosts.ssh_config)
    await connection.open()
    made = Agent(connection, hosts.cluster)
    yield made
    removed = await made.ask("remove", {"cluster": CLUSTER.uid})
    assert (removed["left"], removed["files"]) == (0, False)
    await connection.aclose()


async def started(agent: Agent, hosts: Hosts) -> PodState:
    await agent.ask("start", start_request(hosts, CLUSTER, hosts.head, ""), secret="the-token")
    async with asyncio.timeout(60):
        async for raw in agent.states():
            pod = host_state(raw, hosts.head).living
            if pod is not None and pod.started:
                return pod
    raise AssertionError


async def ended(agent: Agent, hosts: Hosts) -> HostState:
    async with asyncio.timeout(60):
        async for raw in agent.states():
            if (state := host_state(raw, hosts.head)).living is None:
                return state
    raise AssertionError


async def test_pod_is_started_and_its_kill_is_recorded_with_the_signal(
    agent: Agent, hosts: Hosts
) -> None:
    pod = await started(agent, hosts)
    assert pod.pod.name.startswith("host-0-")
    with pytest.raises(UsageError, match="A host has one Ray node"):
        await agent.ask("start", start_request(hosts, CLUSTER, hosts.head, ""), secret="t")
    delete = {"pod": pod.pod.name, "uid": "of-the-one-before", "grace_s": 0}
    with pytest.raises(ReplacedError):
        await agent.ask("delete", delete)
    await agent.ask("delete", delete | {"uid": pod.pod.uid})
    (over,) = (await ended(agent, hosts)).pods
    assert (over.over, over.reason) == (True, "killed by SIGKILL")
    with pytest.raises(UsageError, match="no running pod"):
        await agent.ask("delete", delete)


@pytest.mark.slow
async def test_pod_that_is_deleted_with_grace_gets_sigterm_and_is_not_shown_as_failed(
    agent: Agent, hosts: Hosts
) -> None:
    pod = await started(agent, hosts)
    await agent.ask("delete", {"pod": pod.pod.name, "uid": pod.pod.uid, "grace_s": 60})
    (over,) = (await ended(agent, hosts)).pods
    assert (over.reason, over.shown) == ("killed by SIGTERM", False)


@pytest.mark.slow
async def test_pod_outlives_the_connection_and_a_command_in_it_does_not(
    agent: Agent, hosts: Hosts, sshd: Sshd, tmp_path: Path
) -> None:
    pod = await started(agent, hosts)
    file = tmp_path / "pid"
    script = f"echo $$ > {file}; exec sleep 600"
    request = {"pod": pod.pod.name, "uid": "", "argv": ["sh", "-c", script], "env": {}}
    running = asyncio.create_task(agent.connection.run(agent.argv("exec", request)))
    await until(lambda: bool(text(file)))
    command = identify(int(text(file)))
    assert is_alive(command)
    sshd.cut()
    with pytest.raises(UnreachableError, match="was lost"):
        await running
    await until(lambda: not is_alive(command))
    await agent.connection.aclose()
    await agent.connection.open()
    state = host_state(await agent.ask("status", {"follow": False}), hosts.head)
    assert state.living is not None
    assert state.living.pod.uid == pod.pod.uid


async def test_token_is_in_no_command_line_and_in_a_file_of_its_user_alone(
    agent: Agent, hosts: Hosts
) -> None:
    pod = await started(agent, hosts)
    request = {"pod": pod.pod.name, "uid": "", "env": {}}
    show = ["sh", "-c", 'stat -c %a "$RAY_AUTH_TOKEN_PATH"; cat "$RAY_AUTH_TOKEN_PATH"']
    shown = await agent.connection.run(agent.argv("exec", request | {"argv": show}))
    assert shown.stdout.split() == ["600", "the-token"]
    search = ["sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | grep -ac the-toke[n]"]
    assert (await agent.connection.run(search)).stdout.strip() == "0"


async def test_missing_python_is_named_with_what_to_set(
    sshd: Sshd, hosts: Hosts, folder: Path
) -> None:
    connection = Connection(replace(hosts.head, python="/no/python"), folder, "n", hosts.ssh_config)
    await connection.open()
    with pytest.raises(CockpitError, match="has no Python at /no/python") as refused:
        await Agent(connection, "c").ask("facts", {"address": sshd.address})
    assert "venv" in refused.value.todo
    await connection.aclose()


@pytest.mark.slow
async def test_operator_s_lock_is_released_with_its_connection(agent: Agent, hosts: Hosts) -> None:
    await agent.ask("init", {"cluster": to_builtins(CLUSTER)}, secret="t")
    process = await agent.connection.start(agent.argv("lead", {}))
    assert process.stdout is not None
    await process.stdout.readline()
    with pytest.raises(UsageError, match="Another operator"):
        await agent.ask("lead", {})
    process.kill()
    await process.wait()
    async with asyncio.timeout(30):
        async for raw in agent.states():
            if not host_state(raw, hosts.head).operator:
                return


@pytest.mark.slow
async def test_supervisor_that_was_killed_ends_its_pod(agent: Agent, hosts: Hosts) -> None:
    pod = await started(agent, hosts)
    listed = await agent.connection.run(["pgrep", "-f", f"supervise.*{pod.pod.name}"])
    os.kill(int(listed.stdout.split()[0]), signal.SIGKILL)
    (over,) = (await ended(agent, hosts)).pods
    assert over.reason == "its supervisor was killed"


def text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
