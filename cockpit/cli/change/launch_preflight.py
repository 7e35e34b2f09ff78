"""The preflight of `cockpit launch`: a failed check asks whether to continue, or refuses."""

from __future__ import annotations

import sys
import time

from cockpit.actions.jobs import JobActions
from cockpit.cli.options import confirm, connect
from cockpit.cli.output.streams import log
from cockpit.format import plural
from cockpit.launch.rayjob import RayJobOptions
from cockpit.launch.submission import LaunchSpec
from cockpit.model.error import CockpitError
from cockpit.preflight.demand import demand
from cockpit.preflight.finding import Finding, attention, failed, summary
from cockpit.preflight.preflight import LAUNCH_S
from cockpit.preflight.target import target
from cockpit.session.session import Session

KINDS = ("cluster", "pods")
"""What a session has to list on Kubernetes."""


def passes(
    session: Session, spec: LaunchSpec, new: RayJobOptions | None = None, *, may_ask: bool
) -> bool:
    """Print the findings that need attention; whether to launch. Takes LAUNCH_S at most.

    `new`: the options of a RayJob that creates its own cluster, whose surroundings are checked.
    Raises CockpitError where a check failed and no confirmation is possible. Without a head nothing
    is checked: the launch reports what is wrong.
    """
    found = _of_pods(session, spec) if new is None else _of_new_cluster(session, spec, new)
    if not found:
        return True
    for line in (summary(found), *(one.line for one in attention(found))):
        log(line)
    wrong = failed(found)
    if not wrong:
        return True
    if may_ask and sys.stdin.isatty():
        if confirm.answered_yes("Launch anyway?"):
            return True
        log("Nothing was launched.")
        return False
    count = plural(len(wrong), "check")
    raise CockpitError(
        f"Nothing was launched: {count} of the preflight failed.",
        wrong[0].found,
        "Fix the cause, or launch without the checks: --no-preflight",
    )


def _of_new_cluster(session: Session, spec: LaunchSpec, new: RayJobOptions) -> list[Finding]:
    actions = JobActions.on(session)
    return session.call(actions.preflight_of_new_cluster(spec, new, timeout_s=LAUNCH_S))


def _of_pods(session: Session, spec: LaunchSpec) -> list[Finding]:
    ends_s = time.monotonic() + LAUNCH_S
    wanted = demand(spec)
    connect.wait_for(session, ("backend",), LAUNCH_S)
    store = session.store
    chosen = target(store.pods.values(), store.groups.values())
    left_s = ends_s - time.monotonic()
    if chosen.head is None or left_s <= 0:
        return []
    actions = JobActions.on(session)
    return session.call(actions.preflight(chosen, wanted, timeout_s=left_s))
