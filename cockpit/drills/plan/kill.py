"""Plan a kill: a drill without a hypothesis on one named pod, or on the pod of a rank."""

from __future__ import annotations

from msgspec import Struct

from cockpit import format
from cockpit.drills.plan.plan import DrillPlan, FaultSpec, TargetSpec, Timeouts
from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.error import CockpitError, UnreachableError, UsageError
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run, pod_of_rank, pods_in_order, ranks_on_pod
from cockpit.store.store import Store


class KillPlan(Struct, frozen=True):
    """The drill that kills the pod, and the plan in sentences, for the confirmation."""

    pod: Pod
    lines: tuple[str, ...]
    drill: DrillPlan


RECOVER_S = 300.0
"""How long the recovery is measured."""


def plan_kill(store: Store, target: str, grace_s: float, recover_s: float = RECOVER_S) -> KillPlan:
    """Plan to kill `target`: a pod's name, a rank's number, or `rank:N`.

    With a grace period the pod gets SIGTERM first. The recovery is measured for at most
    `recover_s`. Raises UsageError if there is no such pod or rank,
    UnreachableError if it is not known.
    """
    run = current_run(store)
    pod = _find(store, run, target)
    if pod.phase in (PodPhase.FAILED, PodPhase.SUCCEEDED):
        raise CockpitError(
            f"Pod {pod.name} is not running: {pod.phase.value}.", pod.reason, "Choose a living pod."
        )
    fault = FaultSpec(
        "pod-delete" if grace_s > 0 else "pod-kill",
        {"grace_s": f"{grace_s:g}"} if grace_s > 0 else {},
        TargetSpec(f"pod:{pod.name}", allow_head=True, uid=pod.uid),
    )
    drill = DrillPlan(fault.fault, (fault,), timeouts=Timeouts(recover_s=recover_s))
    return KillPlan(pod, _lines(store, run, pod, grace_s), drill)


def _lines(store: Store, run: RunView | None, pod: Pod, grace_s: float) -> tuple[str, ...]:
    how = (
        f"SIGTERM, then SIGKILL after {format.in_seconds(grace_s)}"
        if grace_s > 0
        else "SIGKILL now"
    )
    lines = [f"Kill pod {pod.name} (group {pod.group}, {pod.ip or 'no address'}): {how}."]
    if pod.node_type is NodeType.HEAD:
        lines.append("This is the HEAD: drivers on it die, and every run ends.")
    others = _others(store, pod)
    if others:
        names = ", ".join(each.name for each in others)
        lines.append(f"KubeRay then replaces the whole replica, which also includes {names}.")
    attempt = run.attempt if run is not None and not run.state.is_over else None
    lost = (pod, *others) if attempt is not None else ()
    ranks = tuple(sorted(rank for each in lost for rank in ranks_on_pod(run, each)))
    runs = "They run" if others else "It runs"
    if run is not None and attempt is not None and ranks:
        after = (
            "the run resumes from its last checkpoint"
            if _has_checkpoint(run)
            else "the next attempt starts from the beginning: the run has reported no checkpoint"
        )
        lines.append(
            f"{runs} {format.ranks(ranks, most=16)} of {run.world_size or 0} of run "
            f"{run.name}: attempt {attempt.number} ends near step {run.step or 0}, and {after}."
        )
    else:
        lines.append(f"{runs} no rank.")
    return tuple(lines)


def _others(store: Store, pod: Pod) -> list[Pod]:
    """The other pods of a replica that spans several hosts."""
    if not pod.replica:
        return []
    return [
        each
        for each in pods_in_order(store)
        if (each.group, each.replica) == (pod.group, pod.replica)
        and each.name != pod.name
        and each.ended_s is None
    ]


def _has_checkpoint(run: RunView) -> bool:
    """An attempt that began later than at step 1 was restored, from a run before it at least."""
    began = (attempt.first_step for attempt in run.attempts.values())
    return run.checkpoint is not None or any(step is not None and step > 1 for step in began)


def _without_ranks(store: Store, run: RunView | None) -> str:
    """The run that is active or about to start, and has no rank yet; empty where there is none
    such.
    """
    if run is not None and not run.state.is_over:
        return "" if run.ranks else f"Run {run.name or run.id} has not started an attempt yet."
    begun = {view.submission_id for view in store.runs.values()}
    begun |= {view.job_id for view in store.runs.values()}
    jobs = [job for job in store.jobs.values() if not job.status.is_over]
    to_come = [job.id for job in jobs if job.id not in begun and job.ray_id not in begun - {""}]
    return f"The run of job {to_come[-1]} has not begun yet." if to_come else ""


def _find(store: Store, run: RunView | None, target: str) -> Pod:
    if (pod := store.pods.get(target)) is not None:
        return pod
    number = target.removeprefix("rank:").removeprefix("rank-")
    if number.isdecimal() and (waits := _without_ranks(store, run)):
        raise UsageError(
            f"There is no rank {number} yet.", waits, "Wait for its first attempt: cockpit ranks"
        )
    if number.isdecimal() and run is not None:
        if run.state.is_over:
            raise UsageError(
                f"There is no living rank {number}: run {run.name or run.id} has ended.",
                f"It is {run.state.value}, so its ranks are on no pod.",
                "Launch a run, or name a pod: cockpit pods",
            )
        rank = run.ranks.get(int(number))
        if rank is not None and (pod := pod_of_rank(store, rank)) is not None:
            return pod
        raise UsageError(
            f"There is no living rank {number} in run {run.name}.",
            f"Its ranks are: {', '.join(map(str, sorted(run.ranks))) or 'none yet'}.",
        )
    state = store.sources.get("telemetry")
    if number.isdecimal() and not (state is not None and (state.ok or state.absent)):
        why = state.error if state is not None and state.error else "it did not answer in time"
        raise UnreachableError(
            f"The pod of rank {number} is not known.",
            f"The telemetry source gives no answer: {why}.",
            "Try again, or name a pod: cockpit pods",
        )
    names = ", ".join(pod.name for pod in pods_in_order(store)) or "none"
    raise UsageError(f"There is no pod or rank {target!r}.", f"Pods: {names}.")
