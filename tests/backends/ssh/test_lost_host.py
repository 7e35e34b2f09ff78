"""A host that loses its power or its network: no connection to it ends, and nothing answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from cockpit.insight.recovery.measurement import is_settled, recovery
from cockpit.model.drill import Drill
from cockpit.model.recovery import FAST
from cockpit.session.session import Session
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.store.store import Store
from tests.host_spaces import Network
from tests.ssh_cluster import START_S, running_job, trains

pytestmark = [
    pytest.mark.nightly,  # test_restart.py has a host that is down, with a stand-in for Ray
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]


@dataclass(frozen=True, slots=True)
class Stage:
    network: Network
    session: Session

    def wait(self, until: Callable[[Store], bool]) -> None:
        assert self.session.wait(until, START_S), (
            current_run(self.session.store),
            self.session.store.pods,
            self.session.store.kubernetes_nodes,
        )


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A run of two ranks on two hosts, and a third host that is spare and has no pod."""
    names = ("host-0", "host-1", "host-2", "host-3")
    with running_job(*names, recovery=FAST) as (network, session):
        yield Stage(network, session)


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
