"""A host that loses its power or its network: no connection to it ends, and nothing answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.backend import SshBackend
from cockpit.insight.recovery.measurement import is_settled, recovery
from cockpit.launch import submission
from cockpit.model.drill import Drill
from cockpit.model.recovery import FAST
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.store.store import Store
from tests.host_spaces import Network, host_spaces
from tests.local_cluster import LIGHT_RUN, separate_state
from tests.ssh_cluster import description

pytestmark = [
    pytest.mark.nightly,  # test_restart.py has a host that is down, with a stand-in for Ray
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]

RANKS = 2
WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Stage:
    network: Network
    session: Session

    def wait(self, until: Callable[[Store], bool]) -> None:
        assert self.session.wait(until, WITHIN_S), (
            current_run(self.session.store),
            self.session.store.pods,
            self.session.store.kubernetes_nodes,
        )


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A run of two ranks on two hosts, and a third host that is spare and has no pod."""
    with separate_state(), host_spaces("host-0", "host-1", "host-2", "host-3") as network:
        hosts = description([host.sshd for host in network.hosts], replicas=RANKS)
        asyncio.run(lifecycle.up(hosts, FAST.name, WITHIN_S, print))
        backend = SshBackend(hosts)
        settings = LIGHT_RUN | {"storage_path": str(network.shared), "max_failures": "-1"}
        spec = replace(submission.bundled_spec("checkpointed", settings, RANKS), recovery=FAST)

        async def launch() -> None:
            async with Dashboard(backend.dashboard) as dashboard:
                await submission.launch(dashboard, spec)

        try:
            with builder.session_on(backend) as session:
                session.call(launch())
                yield Stage(network, session)
        finally:
            asyncio.run(lifecycle.down(hosts))


def trains(store: Store) -> bool:
    """Whether all ranks step, with a checkpoint of this attempt."""
    run = current_run(store)
    attempt = run.attempt if run else None
    return (
        run is not None
        and attempt is not None
        and attempt.ended_s is None
        and attempt.first_step_s is not None
        and len(attempt.placements) == RANKS
        and (run.checkpoint_s or 0.0) > attempt.first_step_s
    )


def test_run_continues_on_the_spare_host_and_the_lost_one_is_shown_until_it_returns(
    stage: Stage,
) -> None:
    session = stage.session
    stage.wait(trains)
    run = current_run(session.store)
    assert run is not None
    assert run.attempt is not None
    victim = pod_of_rank(session.store, run.ranks[1])
    assert victim is not None
    lost = next(host for host in stage.network.hosts if host.name == victim.host)
    drill = Drill(
        id="lost-host",
        fault="pod-kill",
        target=victim.name,
        ranks=(1,),
        injected_s=session.clock(),
        grace_s=0.0,
        run_id=run.id,
        attempt=run.attempt.number,
        step=run.step or 0,
    )
    lost.unplug()

    stage.wait(lambda store: not store.kubernetes_nodes[lost.name].ready)
    reason = session.store.kubernetes_nodes[lost.name].reason
    assert f"host {lost.name}" in reason.lower(), reason
    stage.wait(
        lambda store: any(
            pod.name == victim.name and not pod.ready and "its host is not reached" in pod.reason
            for pod in store.pods.values()
        )
    )

    stage.wait(lambda store: is_settled(store, recovery(store, drill)))
    measured = recovery(session.store, drill)
    print(measured)
    assert measured.detected_s is not None
    assert measured.restarted_s is not None
    assert measured.first_step_s is not None
    assert 0 < measured.detected_s <= measured.restarted_s <= measured.first_step_s
    run = current_run(session.store)
    assert run is not None
    pods = [pod_of_rank(session.store, rank) for rank in run.ranks.values()]
    left = [host.name for host in stage.network.hosts if host is not lost]
    assert sorted(pod.host for pod in pods if pod is not None) == left[1:]

    lost.plug()
    stage.wait(lambda store: store.kubernetes_nodes[lost.name].ready)
    # The GCS has declared its raylet dead: it ends, and the group has its pods without it.
    stage.wait(lambda store: victim.name not in {pod.name for pod in store.pods.values()})
    assert sorted(pod.host for pod in session.store.pods.values() if pod.ready) == left
