"""`up` and `down` that are killed at each of their steps, with a program in place of Ray."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.agent.place import Place
from cockpit.backends.ssh.calls import Agent
from cockpit.backends.ssh.connection import Connection
from cockpit.backends.ssh.description import Hosts
from cockpit.backends.ssh.lifecycle import NotRemovedError
from cockpit.model.error import CockpitError, UnreachableError, UsageError
from tests.local_cluster import separate_state
from tests.ssh_cluster import description, stand_in_python
from tests.sshd import Sshd, hosts

pytestmark = pytest.mark.slow

WITHIN_S = 180.0
UP = [("init", "before"), ("init", "after"), ("operator", "after")]
DOWN = [("retire", "before"), ("retire", "after"), ("remove", "after")]
"""What changes something, in order."""


@pytest.fixture
def cluster() -> Iterator[tuple[Hosts, list[Sshd]]]:
    """Hosts on which nothing runs, and nothing may be left."""
    with separate_state(), hosts(2) as listed:
        described = description(listed, python=stand_in_python(listed[0].config.parent))
        try:
            yield described, listed
        finally:
            if left(described):  # by a test that failed, or that ends so
                for host in listed:
                    if not host.runs:
                        host.start()
                description(listed, python=described.head.python)
                down(described)


def killed(use: Callable[[], None], verb: str, when: str) -> None:
    """Run `use` in a process that is killed before or after this change."""

    def child() -> None:
        ask, start = Agent.ask, lifecycle._start_operator

        async def asked(
            agent: Agent, asked_for: str, request: Mapping[str, Any], *, secret: str = ""
        ) -> Any:
            if (asked_for, when) == (verb, "before"):
                os.kill(os.getpid(), signal.SIGKILL)
            answer = await ask(agent, asked_for, request, secret=secret)
            if asked_for == verb:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        def started(described: Hosts) -> Any:
            operator = start(described)
            if verb == "operator":
                os.kill(os.getpid(), signal.SIGKILL)
            return operator

        setattr(Agent, "ask", asked)  # noqa: B010 - mypy refuses an assignment to a method
        setattr(lifecycle, "_start_operator", started)  # noqa: B010
        use()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(WITHIN_S)
    assert process.exitcode == -signal.SIGKILL


def up(described: Hosts) -> None:
    asyncio.run(lifecycle.up(described, "fast", WITHIN_S, print))


def down(described: Hosts) -> None:
    asyncio.run(lifecycle.down(described))


def left(described: Hosts) -> list[Path]:
    """Files of the cluster: an operator has its log, and a process of a pod is beside some."""
    keys = [Agent(Connection(h, Path(), ""), described.cluster)._key for h in described.hosts]
    files = [lifecycle.operator_log(described), *(Place(key).root for key in keys)]
    return [path for path in files if path.exists()]


def assert_nothing_left(described: Hosts) -> None:
    assert left(described) == []


@pytest.mark.parametrize(("verb", "when"), UP)
def test_up_continues_after_a_kill_at_any_change(
    cluster: tuple[Hosts, list[Sshd]], verb: str, when: str
) -> None:
    described, _ = cluster
    killed(lambda: up(described), verb, when)
    up(described)
    removed = asyncio.run(lifecycle.down(described))
    assert removed.ended >= 4  # two nodes and their supervisors
    assert_nothing_left(described)


@pytest.mark.nightly  # the same kills: test_up_continues_after_a_kill_at_any_change
@pytest.mark.parametrize(("verb", "when"), UP)
def test_down_cleans_up_after_a_kill_of_up_at_any_change(
    cluster: tuple[Hosts, list[Sshd]], verb: str, when: str
) -> None:
    described, _ = cluster
    killed(lambda: up(described), verb, when)
    down(described)
    assert_nothing_left(described)


@pytest.mark.parametrize(("verb", "when"), DOWN)
def test_down_is_repeated_after_a_kill_at_any_change(
    cluster: tuple[Hosts, list[Sshd]], verb: str, when: str
) -> None:
    described, _ = cluster
    up(described)
    killed(lambda: down(described), verb, when)
    down(described)
    assert_nothing_left(described)


def test_new_cluster_that_is_not_ready_is_deleted_and_the_first_error_is_reported(
    cluster: tuple[Hosts, list[Sshd]], capsys: pytest.CaptureFixture[str]
) -> None:
    described, (_, other) = cluster

    def lose(line: str) -> None:
        print(line)
        if line.startswith("Ray "):  # it is created, and the time of 3 s has not begun
            other.stop()

    with pytest.raises(CockpitError, match="is not ready after 3 s"):
        asyncio.run(lifecycle.up(described, "fast", 3.0, lose))
    assert "Warning: Cluster" in capsys.readouterr().out
    other.start()
    down(described)
    assert_nothing_left(described)


def test_changed_file_is_used_by_up_and_a_host_that_it_leaves_out_is_refused(
    cluster: tuple[Hosts, list[Sshd]],
) -> None:
    described, listed = cluster
    fewer = description(listed[:1], python=described.head.python)
    up(fewer)
    said: list[str] = []
    description(listed, python=described.head.python)
    asyncio.run(lifecycle.up(described, "fast", WITHIN_S, said.append))
    assert any("the operator is started again" in line for line in said)
    description(listed[:1], python=described.head.python)
    with pytest.raises(UsageError, match="no longer describes host-1"):
        asyncio.run(lifecycle.down(fewer))
    with pytest.raises(UsageError, match="no longer describes host-1"):
        up(fewer)
    assert asyncio.run(lifecycle.down(described)).hosts == 2
    assert_nothing_left(described)


def test_operator_that_does_not_end_for_a_changed_file_is_reported(
    cluster: tuple[Hosts, list[Sshd]], monkeypatch: pytest.MonkeyPatch
) -> None:
    described, listed = cluster
    fewer = description(listed[:1], python=described.head.python)
    up(fewer)
    description(listed, python=described.head.python)
    monkeypatch.setattr(lifecycle, "RETIRE_S", 2.0)
    monkeypatch.setattr(lifecycle, "end_operator", lambda hosts: True)
    with pytest.raises(UnreachableError, match="has not ended in 2 s") as raised:
        up(described)
    assert (raised.value.why, raised.value.todo) == (
        "Host host-0 is slow, or another operator has started.",
        "Run the command again.",
    )


def test_up_of_a_cluster_reports_a_worker_s_host_that_is_lost_and_starts_an_operator(
    cluster: tuple[Hosts, list[Sshd]],
) -> None:
    _, listed = cluster
    described = description(listed, python=stand_in_python(listed[0].config.parent), replicas=0)
    up(described)
    assert lifecycle.end_operator(described)
    listed[1].stop()
    said: list[str] = []
    asyncio.run(lifecycle.up(described, "fast", WITHIN_S, said.append))
    assert any(line.startswith("Warning: host host-1 is not used: ") for line in said)
    with pytest.raises(NotRemovedError) as raised:
        asyncio.run(lifecycle.down(described))
    assert raised.value.hosts == ("host-1",)
    listed[1].start()
    down(described)
    assert_nothing_left(described)
