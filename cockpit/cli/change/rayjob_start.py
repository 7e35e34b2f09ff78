"""Waiting until KubeRay's operator has submitted a RayJob, with what it waits for."""

from __future__ import annotations

import sys
import textwrap

from cockpit.cli.options import connect
from cockpit.format import in_seconds
from cockpit.model.error import CockpitError
from cockpit.model.run import Job
from cockpit.model.text import one_line
from cockpit.session.session import Session
from cockpit.store.store import Store

START_TIMEOUT_S = 600.0
"""The cluster of the RayJob may wait for nodes."""
END_TIMEOUT_S = 60.0
"""From the end of its log to the resource's next state: over, or tried again."""
SLOW_S = 20.0
"""After so long without a new state, what the operator reports is printed."""
RUNS = "Running"
"""The jobDeploymentStatus in which KubeRay submits the job, and watches it."""


def until_submitted(session: Session, name: str, followed: set[str]) -> Job | None:
    """Return the job when the operator has submitted it under an id that was not followed yet.

    A retry has another id; a short job may be over. None when nothing is left to follow. Prints
    each state with the condition that it waits for and, after a long wait, what the operator
    reports. Raises CockpitError on timeout.
    """
    current, limit_s = "", START_TIMEOUT_S

    def settled(store: Store) -> bool:
        nonlocal current, limit_s
        job = connect.rayjob(store, name)
        if job is None:
            return bool(followed)
        retrying = job.deployment == "Retrying"
        limit_s = END_TIMEOUT_S if job.id in followed and not retrying else START_TIMEOUT_S
        done = job.status.is_over or (is_with_ray(job) and job.id not in followed)
        tries = f" ({job.tries})" if job.failed and not retrying else ""
        state = f"{job.deployment}{tries}" + ("" if done else f", {waiting_for(job)}")
        if state != current:
            current = state
            print_state(name, state)
        return done

    waited_s = 0.0
    before: str | None = None
    reported: str | None = None
    while not session.wait(settled, min(SLOW_S, limit_s)):
        waited_s += SLOW_S
        if _is_queued(session.store, name):
            waited_s = 0.0  # a queue may take days
            continue
        if before not in (None, current):
            waited_s = SLOW_S  # a retry has its own limit for each state
        if waited_s >= limit_s:
            verdict = "is not over yet" if limit_s == END_TIMEOUT_S else "has not started"
            raise too_late(session, name, limit_s, verdict)
        if before == current != reported:
            reported = current
            _report(session, name)
        before = current
    job = connect.rayjob(session.store, name)
    return None if job is None or job.id in followed or not job.submitted else job


def _is_queued(store: Store, name: str) -> bool:
    job = connect.rayjob(store, name)
    return job is not None and bool(job.queue) and job.deployment in ("New", "Suspended")


def is_with_ray(job: Job) -> bool:
    return job.deployment == RUNS and job.submitted


def waiting_for(job: Job) -> str:
    if job.deployment == RUNS:
        if job.submitted:
            return "waiting for its end"
        return "waiting until the operator has submitted the job to Ray"
    cluster = f"RayCluster {job.cluster}" if job.cluster else "its RayCluster"
    return {
        "New": "waiting for the KubeRay operator",
        "Initializing": f"waiting until {cluster} is ready",
        "Retrying": _retrying(job),
        "Suspended": _suspended(job),
    }.get(job.deployment, "waiting for the next state")


def _retrying(job: Job) -> str:
    failed = f"{job.tries} failed{f': {one_line(job.message, 200)}' if job.message else ''}"
    return f"{failed}; waiting until its cluster is deleted"


def _suspended(job: Job) -> str:
    if not job.queue:
        return "waiting until it is resumed"
    return job.message or f"waiting until queue {job.queue} admits it"


def _report(session: Session, name: str) -> None:
    """The operator's view: the RayJob's state, its cluster's conditions, the Events of both."""
    print_state(name, f"no new state for {in_seconds(SLOW_S)}. The operator reports:")
    try:
        text = session.call(session.backend.describe("rayjob", name))
    except CockpitError as error:
        text = str(error)
    print(textwrap.indent(text.strip(), "  "), file=sys.stderr)


def too_late(session: Session, name: str, limit_s: float, verdict: str) -> CockpitError:
    job = connect.rayjob(session.store, name)
    why = f"It is {job.deployment}, {waiting_for(job)}" if job else "It is not listed"
    return CockpitError(
        f"RayJob {name} {verdict} after {in_seconds(limit_s)}.",
        f"{why}{f': {job.message}' if job and job.message else ''}.",
        f"See: cockpit describe rayjob/{name}, cockpit pods",
    )


def print_state(name: str, what: str) -> None:
    print(f"RayJob {name}: {what}", file=sys.stderr)
