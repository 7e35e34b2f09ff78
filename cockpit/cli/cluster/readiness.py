"""Wait until a new cluster is ready, and print what it waits for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from cockpit.cli.output.streams import log
from cockpit.format import in_seconds
from cockpit.model.cluster import ClusterHealth
from cockpit.model.error import CockpitError
from cockpit.session.session import Session
from cockpit.store.store import Store

COUNT = re.compile(r" \(×\d+\)$")
"""How often an event was repeated: a probe of a pod that starts fails each second."""
SLOW_S = 20.0
"""After so long without a new state, the claim is checked too."""


def wait(session: Session, timeout_s: float, claim: Callable[[], str]) -> None:
    """Print what the cluster waits for, until it is ready. Raises CockpitError on timeout.

    `claim` returns why the claim has no volume; it is called when nothing new was reported.
    """
    shown = ""
    name = session.backend.ref.name

    def settled(store: Store) -> bool:
        nonlocal shown
        if store.health is ClusterHealth.READY:
            return True
        state = store.health_message or store.health.value
        if "backend" in store.sources and COUNT.sub("", state) != COUNT.sub("", shown):
            shown = state
            log(f"Waiting for RayCluster {name}: {state}")
        return False

    deadline, before, reported = time.monotonic() + timeout_s, "", ""
    while not session.wait(settled, min(SLOW_S, max(0.0, deadline - time.monotonic()))):
        why = claim() if before == shown else ""
        if why and why != reported:
            reported = why
            log(f"Waiting for RayCluster {name}: {why}")
        before = shown
        if time.monotonic() >= deadline:
            ref = session.backend.ref
            raise CockpitError(
                f"RayCluster {name} is not ready after {in_seconds(timeout_s)}, and stays as it "
                f"is.",
                f"It is {session.store.health.value}: {shown or 'nothing is reported'}"
                + (f"; {why}" if why else ""),
                "See: cockpit why cluster, cockpit events, cockpit doctor, each with "
                f"-n {ref.namespace} --cluster {name}",
            )
