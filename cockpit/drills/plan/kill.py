"""Kill one pod, or the pod under a rank, and say beforehand what that will hit."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from cockpit import format
from cockpit.backends.protocol import Backend
from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.drill import Drill
from cockpit.model.error import CockpitError, UsageError
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run, pod_of_rank, pods_in_order, ranks_on_pod
from cockpit.store.store import Store


@dataclass(frozen=True, slots=True)
class KillPlan:
    """What a kill will do, and to whom: shown before it is done."""

    pod: Pod
    ranks: tuple[int, ...]
    grace_s: float
    run_id: str
    run_name: str
    attempt: int
    step: int
    world_size: int
    has_checkpoint: bool
    """The run told of one, or began from one: the next attempt need not begin anew."""

    @property
    def fault(self) -> str:
        return "pod-delete" if self.grace_s > 0 else "pod-kill"

    @property
    def lines(self) -> tuple[str, ...]:
        """The plan in sentences, for the question that is asked first."""
        how = f"SIGTERM, then SIGKILL after {self.grace_s:g} s" if self.grace_s else "SIGKILL now"
        what = f"Kill pod {self.pod.name} (group {self.pod.group}, {self.pod.ip or 'no address'})"
        said = [f"{what}: {how}."]
        if self.pod.node_type is NodeType.HEAD:
            said.append("This is the HEAD: drivers on it die, and every run ends.")
        if self.ranks:
            ranks = format.ranks(self.ranks, most=16)
            said.append(
                f"It carries {ranks} of {self.world_size} of run {self.run_name}: attempt "
                f"{self.attempt} ends near step {self.step}, and {self._after}."
            )
        else:
            said.append("No rank of a run is on it.")
        return tuple(said)

    @property
    def _after(self) -> str:
        """How the run goes on."""
        if self.has_checkpoint:
            return "resumes from its last checkpoint"
        return "the next one starts from the beginning: the run has told of no checkpoint"


def plan_kill(store: Store, target: str, grace_s: float) -> KillPlan:
    """Who is meant by `target`: a pod's name, a rank's number, or `rank:N`.

    Raises UsageError when there is no such pod or rank.
    """
    run = current_run(store)
    pod = _find(store, run, target)
    if pod.phase in (PodPhase.FAILED, PodPhase.SUCCEEDED):
        raise CockpitError(
            f"Pod {pod.name} is not running: {pod.phase.value}.", pod.reason, "Choose a living pod."
        )
    attempt = run.attempt if run and not run.state.is_over else None
    return KillPlan(
        pod=pod,
        ranks=ranks_on_pod(store, run, pod) if attempt else (),
        grace_s=max(0.0, grace_s),
        run_id=run.id if run and attempt else "",
        run_name=run.name if run and attempt else "",
        attempt=attempt.number if attempt else 0,
        step=(run.step or 0) if run and attempt else 0,
        world_size=(run.world_size or 0) if run else 0,
        has_checkpoint=run is not None and _has_checkpoint(run),
    )


async def kill(backend: Backend, plan: KillPlan, clock: Callable[[], float]) -> Drill:
    """Do it. The drill that comes back is for `DrillInjected`; it names the instant before."""
    injected_s = clock()
    await backend.delete_pod(plan.pod.name, uid=plan.pod.uid, grace_s=plan.grace_s)
    return Drill(
        id=f"drill-{secrets.token_hex(4)}",
        fault=plan.fault,
        target=plan.pod.name,
        ranks=plan.ranks,
        injected_s=injected_s,
        grace_s=plan.grace_s,
        run_id=plan.run_id,
        attempt=plan.attempt,
        step=plan.step,
    )


def _has_checkpoint(run: RunView) -> bool:
    """An attempt that began later than at step 1 was restored, from a run before it at least."""
    began = (attempt.first_step for attempt in run.attempts.values())
    return run.checkpoint is not None or any(step is not None and step > 1 for step in began)


def _without_ranks(store: Store, run: RunView | None) -> str:
    """Which run goes on, or is to come, and has no rank yet; empty where there is none such."""
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
        rank = run.ranks.get(int(number))
        if rank is not None and (pod := pod_of_rank(store, rank)) is not None:
            return pod
        raise UsageError(
            f"There is no living rank {number} in run {run.name}.",
            f"Its ranks are: {', '.join(map(str, sorted(run.ranks))) or 'none yet'}.",
        )
    names = ", ".join(pod.name for pod in pods_in_order(store)) or "none"
    raise UsageError(f"There is no pod or rank {target!r}.", f"Pods: {names}.")
