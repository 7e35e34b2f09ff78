"""Warnings before a fault is injected. Pure functions.

The restart limit of a run is read from its stream or from Ray Train's API, else from its job's
command line; Ray's default is 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cockpit.drills.faults.fault import Victims
from cockpit.model.run import RunState
from cockpit.store.run import RunView
from cockpit.store.store import Store

FAILURES = "max_failures"
PREEMPTIONS = "max_preemption_failures"
DRIVER_GONE = "its driver went away"
"""The reason of an attempt whose driver could not report its end: Ray counts from 0 after it."""
_FLAG = re.compile(r"(?<![\w-])(?:--)?max[-_]failures[= ](-?\d+)(?!\w)")


def warnings(store: Store, hit: Sequence[Victims]) -> tuple[str, ...]:
    """A line each, what costs most first."""
    found: list[str] = []
    runs = dict.fromkeys(victims.run_id for victims in hit if victims.run_id in store.runs)
    if not runs:
        found.append("no run is active: only the pods are measured")
    for run_id in runs:
        found += _of_run(store, store.runs[run_id], hit)
    for group in dict.fromkeys(pod.group for victims in hit for pod in victims.pods):
        found += _of_group(store, group)
    return tuple(found)


def _of_run(store: Store, run: RunView, hit: Sequence[Victims]) -> Iterator[str]:
    name = run.name or run.id
    where = _driver_pod(store, run, hit)
    if where:
        yield f"the driver of run {name} is on {where}: the run ends with it, unless it is resumed"
    if why := no_restart(store, run):
        yield why
    preemptions = run.max_preemption_failures
    if preemptions is not None and 0 <= preemptions <= _charged(run, PREEMPTIONS):
        yield f"run {name} has no {PREEMPTIONS} left: an announced loss of a node ends it"
    if run.checkpoint is None:
        lost = f"all of its {run.step:,} steps" if run.step else "all of its steps"
        yield f"run {name} has no checkpoint yet: {lost} would be lost"
    if run.state not in (RunState.RUNNING, RunState.UNKNOWN):
        yield f"run {name} is {run.state.value}: it has not recovered from an earlier fault"


def _of_group(store: Store, name: str) -> Iterator[str]:
    group = store.groups.get(name)
    if group is None:
        return
    if group.autoscaled:
        yield f"group {name} is autoscaled: the autoscaler may change its number of pods"
    if group.max and group.desired >= group.max:
        yield f"group {name} is at its max of {group.max}: no other pod can replace it"
    if group.desired <= group.min:
        yield f"group {name} is at its min of {group.min}: it cannot be scaled down"


def max_failures(store: Store, run: RunView) -> int | None:
    """The number of restarts after a failure that the run may have; -1: no limit, None: unknown."""
    if run.max_failures is not None:
        return run.max_failures
    job = store.jobs.get(run.submission_id)
    found = _FLAG.search(job.entrypoint) if job is not None else None
    return int(found[1]) if found else None


def no_restart(store: Store, run: RunView) -> str:
    """Return why the death of a rank may end the run; empty where Ray Train restarts it."""
    name = run.name or run.id
    limit, used = max_failures(store, run), _charged(run, FAILURES)
    if limit is None:
        return f"run {name} does not report how often it may restart, and Ray's default is never"
    if limit == 0:
        return f"run {name} has {FAILURES}=0: the death of a rank ends it"
    if 0 < limit <= used:
        return f"run {name} has used up its {FAILURES}={limit}: the death of a rank ends it"
    return ""


def _charged(run: RunView, budget: str) -> int:
    """As the run's present driver counts them."""
    count = 0
    for number in sorted(run.attempts):
        view = run.attempts[number]
        count = 0 if view.reason == DRIVER_GONE else count + (view.budget == budget)
    return count


def _driver_pod(store: Store, run: RunView, hit: Sequence[Victims]) -> str:
    """The pod of the run's driver, if it is one of these."""
    job = store.jobs.get(run.submission_id)
    node = store.nodes.get(job.driver_node_id) if job is not None else None
    if node is None:
        return ""
    pods = (pod for victims in hit for pod in victims.pods)
    return next((pod.name for pod in pods if pod.ip == node.ip), "")
