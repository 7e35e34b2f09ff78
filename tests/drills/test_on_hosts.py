"""Drills on a real run on hosts that are namespaces of this machine, with real sshd and Ray."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from cockpit.model.drill import Verdict
from cockpit.model.recovery import DEFAULT
from cockpit.session.session import Session
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.store.store import Store
from tests.drills.real_drill import conduct, plan, rank_kill_report
from tests.host_spaces import HostSpace, Network
from tests.ssh_cluster import RANKS, START_S, running_job, trains
from tests.sshd import children

pytestmark = [
    pytest.mark.nightly,  # the same drills on local pods: test_processes_on_local.py
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]


@dataclass(frozen=True, slots=True)
class Stage:
    network: Network
    session: Session

    def host_of(self, rank: int) -> tuple[HostSpace, int]:
        """The host of the rank, and the number of its process there."""
        self.session.drain()
        run = current_run(self.session.store)
        assert run is not None
        view = run.rank_view(rank)
        pod = pod_of_rank(self.session.store, view)
        assert pod is not None
        assert view.placement is not None
        host = next(host for host in self.network.hosts if host.name == pod.host)
        return host, view.placement.pid


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """With the profile `fast`, Ray would end a rank that is frozen for 12 s."""
    with running_job("host-0", "host-1", "host-2", recovery=DEFAULT) as (network, session):
        assert session.wait(trains, START_S), session.store.jobs
        yield Stage(network, session)


def state(host: HostSpace, pid: int) -> str:
    """One letter of proc(5): T is stopped."""
    return host.run("ps", "-o", "stat=", "-p", str(pid))[:1]


def test_fault_is_undone_although_the_connection_was_cut(stage: Stage, tmp_path: Path) -> None:
    host, pid = stage.host_of(1)

    def cut(store: Store) -> None:
        assert state(host, pid) == "T"
        sessions = children(host.sshd.daemon)
        assert sessions, "the host is connected"
        for each in sessions:
            with suppress(ProcessLookupError):  # it has ended with another one
                os.kill(each, signal.SIGKILL)

    asked = plan("rank-freeze", "rank:1", for_s=600, recover_s=1)
    record = conduct(stage.session, asked, tmp_path, observe=cut, abort=True)
    assert record.verdict is Verdict.ABORTED, record
    assert state(host, pid) not in ("T", "")


def test_report_of_a_killed_rank_is_that_of_other_backends(stage: Stage, tmp_path: Path) -> None:
    assert stage.session.wait(trains, START_S)
    record = conduct(stage.session, plan("rank-kill", "rank:1"), tmp_path)
    assert rank_kill_report(record).ranks_after == RANKS
