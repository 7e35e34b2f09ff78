"""Select the targets of a fault: by name or by a seeded choice, at most the requested number."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from msgspec.structs import replace

from cockpit.drills.faults.fault import Aim, Fault, RankVictim, Victims
from cockpit.drills.plan.plan import TargetSpec
from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.error import CockpitError, ReplacedError, UsageError
from cockpit.model.text import one_line
from cockpit.store.run import RunView
from cockpit.store.selectors import going_run, pod_of_rank, pods_in_order
from cockpit.store.store import Store

T = TypeVar("T")

_GONE = (PodPhase.FAILED, PodPhase.SUCCEEDED, PodPhase.TERMINATING)


def choose(store: Store, kind: Fault, spec: TargetSpec, random: Random) -> Victims:
    """Raises UsageError for what is not there, and CockpitError where too few are.

    Draws are from what is sorted, so that the same seed on the same cluster hits the same rank or
    the pod of the same place in its group, independent of the pods' names.
    """
    run = _going(store, spec.run_id)
    if kind.aim is Aim.RANK:
        return _with_run(_ranks(store, run, spec, random), run)
    if kind.aim is Aim.HEAD or spec.select == "head":
        return _with_run(_of_pods(run, (_head(store),)), run)
    if kind.aim in (Aim.STORAGE, Aim.CHECKPOINT) and spec.select == "random":
        # Where rank 0 writes: with `count`, the directories of that many ranks.
        pods = _pods_of_ranks(store, run) or _candidates(store, spec)
        return _with_run(_of_pods(run, tuple(pods[: spec.count])), run)
    return _with_run(_of_pods(run, _pods(store, run, spec, random)), run)


def _going(store: Store, run_id: str) -> RunView | None:
    run = store.runs.get(run_id) if run_id else going_run(store)
    return run if run is not None and run.attempt is not None else None


def _ranks(store: Store, run: RunView | None, spec: TargetSpec, random: Random) -> Victims:
    if run is None or run.attempt is None:
        raise _no_rank(store)
    here = {p.rank: p for p in run.attempt.placements}
    found: list[RankVictim] = []
    pods: dict[str, Pod] = {}
    for rank in sorted(here):
        pod = pod_of_rank(store, run.rank_view(rank))
        if pod is None or pod.phase in _GONE or (spec.groups and pod.group not in spec.groups):
            continue
        found.append(RankVictim(rank, pod.name, here[rank].pid))
        pods[pod.name] = pod
    wanted = spec.select.removeprefix("rank:").removeprefix("rank-")
    if wanted.isdecimal():
        found = [victim for victim in found if victim.rank == int(wanted)]
        if not found:
            raise UsageError(
                f"There is no living rank {wanted} in run {run.name}.",
                f"Its ranks are: {', '.join(map(str, sorted(here))) or 'none yet'}.",
            )
    elif spec.select not in ("random", ""):
        pod = _named(store, _strip(spec.select))
        found = [victim for victim in found if victim.pod == pod.name]
        if not found:
            raise CockpitError(f"No rank of run {run.name} is on pod {pod.name}.")
    chosen = _draw(found, spec.count, random, f"ranks of run {run.name}")
    return Victims(
        pods=tuple(dict.fromkeys(pods[victim.pod] for victim in chosen)), ranks=tuple(chosen)
    )


def _pods(store: Store, run: RunView | None, spec: TargetSpec, random: Random) -> tuple[Pod, ...]:
    select = spec.select
    rank = select.removeprefix("rank:").removeprefix("rank-")
    if rank.isdecimal():
        return _ranks(store, run, spec, random).pods
    if select.startswith("group:"):
        return tuple(_candidates(store, TargetSpec(groups=(select.removeprefix("group:"),))))
    if select not in ("random", ""):
        pod = _named(store, _strip(select))
        if spec.uid and pod.uid != spec.uid:
            raise ReplacedError("Pod", pod.name)
        if pod.node_type is NodeType.HEAD and not spec.allow_head:
            raise UsageError(
                f"Pod {pod.name} is the head.",
                "The head is no random target: the GCS, the dashboard and drivers end with it.",
                "Name it: target `head`, or allow_head = true.",
            )
        return (pod,)
    busy = [
        pod for pod in _pods_of_ranks(store, run) if not spec.groups or pod.group in spec.groups
    ]
    # A pod that trains is what a drill is about; an idle one is hit when there are too few.
    pods = busy if len(busy) >= spec.count else _candidates(store, spec)
    where = f"pods of {', '.join(spec.groups)}" if spec.groups else "worker pods"
    return tuple(_draw(pods, spec.count, random, where))


def _of_pods(run: RunView | None, pods: tuple[Pod, ...]) -> Victims:
    by_ip = {pod.ip: pod.name for pod in pods if pod.ip}
    placements = run.attempt.placements if run is not None and run.attempt is not None else ()
    ranks = [RankVictim(p.rank, by_ip[p.node_ip], p.pid) for p in placements if p.node_ip in by_ip]
    return Victims(pods=pods, ranks=tuple(sorted(ranks, key=lambda victim: victim.rank)))


def _with_run(victims: Victims, run: RunView | None) -> Victims:
    if run is None or run.attempt is None:
        return victims
    path = run.checkpoint.path if run.checkpoint is not None else ""
    return Victims(
        pods=victims.pods,
        ranks=victims.ranks,
        run_id=run.id,
        run_name=run.name,
        submission_id=run.submission_id,
        attempt=run.attempt.number,
        step=run.step or 0,
        world_size=run.world_size or 0,
        checkpoint_path=path,
        storage_path=run_directory(path),
    )


def run_directory(checkpoint: str) -> str:
    """The directory that holds a checkpoint, which may be an address such as s3://…; '' if none."""
    return checkpoint.rpartition("/")[0]


def _head(store: Store) -> Pod:
    for pod in store.pods.values():
        if pod.node_type is NodeType.HEAD and pod.phase not in _GONE:
            return pod
    raise CockpitError("There is no living head pod.", todo="See: cockpit pods")


def _named(store: Store, name: str) -> Pod:
    pod = store.pods.get(name)
    if pod is None:
        names = ", ".join(pod.name for pod in pods_in_order(store)) or "none"
        raise UsageError(f"There is no pod {one_line(name)!r}.", f"Pods: {names}.")
    if pod.phase in _GONE:
        raise CockpitError(
            f"Pod {pod.name} is not running: {pod.phase.value}.", pod.reason, "Choose a living pod."
        )
    return pod


def _no_rank(store: Store) -> CockpitError:
    what = "There is no rank to target."
    telemetry = store.sources.get("telemetry")
    if telemetry is None or not telemetry.ok:
        # Without a response it is not known whether there is none.
        why = one_line(telemetry.error) if telemetry is not None else "telemetry has not responded"
        return CockpitError(what, f"The runs are not known: {why}.", "Try again: cockpit status")
    return CockpitError(what, "No run is active.", "Launch one: cockpit launch checkpointed")


def _strip(select: str) -> str:
    return select.removeprefix("pod:")


def _candidates(store: Store, spec: TargetSpec) -> list[Pod]:
    """Living worker pods of the groups, in an order that a replacement's name does not change."""
    unknown = [group for group in spec.groups if group not in store.groups]
    if unknown:
        names = ", ".join(sorted(store.groups)) or "none"
        raise UsageError(f"There is no worker group {one_line(unknown[0])!r}.", f"Groups: {names}.")
    return [
        pod
        for pod in pods_in_order(store)
        if pod.node_type is NodeType.WORKER
        and pod.phase is PodPhase.RUNNING
        and (not spec.groups or pod.group in spec.groups)
    ]


def _pods_of_ranks(store: Store, run: RunView | None) -> list[Pod]:
    """By rank, each pod once; the head only if it is the only one."""
    if run is None or run.attempt is None:
        return []
    found: dict[str, Pod] = {}
    for placement in sorted(run.attempt.placements, key=lambda p: p.rank):
        pod = pod_of_rank(store, run.rank_view(placement.rank))
        if pod is not None and pod.phase not in _GONE and pod.node_type is NodeType.WORKER:
            found.setdefault(pod.name, pod)
    return list(found.values())


def _draw(found: list[T], count: int, random: Random, what: str) -> list[T]:
    if count < 1:
        raise UsageError(f"A drill needs 1 target or more, not {count}.")
    if len(found) < count:
        raise CockpitError(
            f"Not enough targets: {len(found)} {what}, but {count} needed.",
            todo="Select fewer, or wait for the cluster: cockpit pods",
        )
    chosen = random.sample(range(len(found)), count)
    return [found[index] for index in sorted(chosen)]


def as_now(store: Store, victims: Victims) -> Victims:
    """The current ones: the run has continued since they were chosen."""
    run = store.runs.get(victims.run_id)
    if run is None or run.attempt is None:
        return victims
    return replace(victims, attempt=run.attempt.number, step=run.step or 0)


def workload(store: Store, victims: Victims) -> tuple[str, str]:
    """The command and the recovery profile of the run, from its job's metadata."""
    job = store.jobs.get(victims.submission_id)
    metadata = job.metadata if job is not None else {}
    return metadata.get("cockpit.job", victims.run_name), metadata.get("cockpit.recovery", "")
