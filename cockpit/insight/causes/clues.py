"""Collect clues about the end of an attempt from the store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cockpit.insight.causes.clue import Clue, clue_of
from cockpit.insight.causes.log_clues import (
    RANKS_WITHIN,
    numbers,
    of_excerpts,
    of_job,
    of_reason,
)
from cockpit.insight.causes.rules import DRILLS, EFFECTS, EXCEPTION, GUARD_RESTART
from cockpit.insight.causes.types import Category
from cockpit.insight.hang.types import Confidence, Kind
from cockpit.insight.hang.verdict import last_verdict
from cockpit.model.cluster import NodeType, Pod
from cockpit.model.drill import Drill
from cockpit.model.run import Job
from cockpit.model.text import one_line
from cockpit.store.run import AttemptView, RunView
from cockpit.store.store import Store

BEFORE_S, AFTER_S = 90.0, 15.0
"""A clue of the cluster counts from this long before the end until this long after it."""
LOG_TAIL_S = 120.0
"""A job that fails later than this after an attempt failed for another reason."""
DRILL_WEIGHT, OTHER_DRILL_WEIGHT = 96, 50
MEMORY_KILL_WEIGHT, MEMORY_KILL_NEAR_WEIGHT = 98, 72
HANG_WEIGHT = 72
DEAD_NODE_WEIGHT = 70
WITHDRAWN_WEIGHT, ALL_WITHDRAWN_WEIGHT, LONG_WITHDRAWN_WEIGHT = 93, 70, 50
_HANG_CATEGORIES = {
    Kind.NETWORK: Category.NETWORK,
    Kind.STORAGE: Category.STORAGE,
    Kind.GPU: Category.GPU,
    Kind.RESOURCES: Category.RESOURCES,
}


def of_attempt(store: Store, run: RunView, attempt: AttemptView) -> list[Clue]:
    """In no order."""
    end_s = attempt.ended_s if attempt.ended_s is not None else math.inf
    found = list(of_reason(attempt.reason, "Ray Train", attempt.ended_s))
    is_last = run.attempt is attempt
    if is_last and run.state.is_over and run.message != attempt.reason:
        found += of_reason(run.message, "Ray Train", run.ended_s)
    job = store.jobs.get(run.submission_id)
    if is_last and job is not None and _ended_with(job, end_s):
        found += of_job(job)
        found += of_excerpts(store, job.id, 0, job.ended_s)
    found += of_excerpts(store, run.id, attempt.number, attempt.ended_s)
    found += _of_memory_kills(store, attempt, end_s)
    found += _of_pods(store, attempt, end_s)
    found += _of_notices(store, attempt, end_s)
    found += _of_nodes(store, attempt, end_s)
    found += _of_dead_nodes(store, run, attempt)
    found += _of_withdrawn_gpus(store, attempt, end_s)
    found += _of_hang(store, run, attempt, end_s)
    found += _of_xid(run, attempt, end_s)
    located = [_located(store, attempt, clue) for clue in found]
    return [*located, *_of_drills(store, run, attempt, end_s, located)]


def _ended_with(job: Job, end_s: float) -> bool:
    if not job.status.is_over:
        return False
    return job.ended_s is None or end_s == math.inf or abs(job.ended_s - end_s) <= LOG_TAIL_S


def _of_memory_kills(store: Store, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    """A killed rank is the cause; another process of its node, or of the head's, may be."""
    by_process = {(p.node_id, p.pid): p.rank for p in attempt.placements}
    hosting = {p.node_id for p in attempt.placements}
    hosting |= {node.id for node in store.nodes.values() if node.is_head}
    for kill in store.memory_kills:
        if not _is_near(kill.at_s, attempt, end_s) or kill.node_id not in hosting:
            continue
        rank = by_process.get((kill.node_id, kill.pid))
        yield Clue(
            Category.HOST_MEMORY,
            MEMORY_KILL_NEAR_WEIGHT if rank is None else MEMORY_KILL_WEIGHT,
            "was killed by Ray's memory monitor, since its node ran out of memory"
            if rank is not None
            else f"lost a process (pid {kill.pid}) to Ray's memory monitor",
            one_line(kill.detail, 300),
            "memory monitor",
            kill.at_s,
            () if rank is None else (rank,),
            node=kill.node_id if rank is None else "",
        )


def _of_pods(store: Store, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    """Of pods that hosted ranks, and of the head."""
    for pod in _hosts(store, attempt):
        if not pod.reason:
            continue
        at_s = pod.ended_s or store.removed_pods.get(pod.name)
        if at_s is None or not _is_near(at_s, attempt, end_s):
            continue
        found = clue_of(pod.reason, "pod status", at_s, pod=pod.name, node=pod.host)
        if found is not None:
            yield found


def _of_notices(store: Store, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    if not store.notices:
        return
    hosts = {pod.name: pod for pod in _hosts(store, attempt)}
    ips = _ips(attempt)
    names = {past.name for past in store.past.pods.values() if past.ip in ips} | hosts.keys()
    node_names = {pod.host for pod in hosts.values() if pod.host}
    for notice in store.notices:
        is_ours = notice.name in names or notice.name in node_names
        if not is_ours or not _is_near(notice.at_s, attempt, end_s):
            continue
        pod = notice.name if notice.name in names else ""
        node = notice.name if notice.name in node_names else ""
        text = f"{notice.reason}: {notice.message}"
        if (found := clue_of(text, "event", notice.at_s, pod=pod, node=node)) is not None:
            yield found


def _of_nodes(store: Store, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    """Of the Ray nodes that hosted ranks and died."""
    hosting = {placement.node_id for placement in attempt.placements}
    for death in store.past.deaths:
        if death.id not in hosting or not _is_near(death.at_s, attempt, end_s):
            continue
        node = store.nodes.get(death.id)
        text = node.state_message if node is not None else ""
        ranks = tuple(p.rank for p in attempt.placements if p.node_id == death.id)
        found = clue_of(text, "Ray node", death.at_s, ranks=ranks) if text else None
        if found is None or found.weight < EXCEPTION:
            found = clue_of("its node died", "Ray node", death.at_s, ranks=ranks)
        if found is not None:
            yield replace(found, quote=one_line(text or f"node {death.id[:8]} is dead", 300))


def _of_dead_nodes(store: Store, run: RunView, attempt: AttemptView) -> Iterator[Clue]:
    """Nodes that were dead when first seen: the time is unknown, but no later attempt used them."""
    already_dead = {death.id for death in store.past.deaths}
    later = {
        placement.node_id
        for number, other in run.attempts.items()
        if number > attempt.number
        for placement in other.placements
    }
    hosting = {placement.node_id for placement in attempt.placements}
    for node_id in sorted(hosting - already_dead - later):
        node = store.nodes.get(node_id)
        if node is not None and not node.alive:
            ranks = tuple(p.rank for p in attempt.placements if p.node_id == node_id)
            quote = one_line(node.state_message or f"node {node_id[:8]} is dead", 300)
            yield Clue(
                Category.NODE, DEAD_NODE_WEIGHT, "lost its node", quote, "Ray node", ranks=ranks
            )


def _of_withdrawn_gpus(store: Store, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    """Of the K8s nodes of the ranks. Its time is unknown where it was so in the first list."""
    pods = {pod.host: pod for pod in _hosts(store, attempt) if pod.host}
    for one in store.past.withdrawals:
        is_near = one.is_seen and _is_near(one.at_s, attempt, end_s)
        if one.node in pods and (is_near or (not one.is_seen and one.at_s > end_s)):
            near_weight = WITHDRAWN_WEIGHT if one.is_partial else ALL_WITHDRAWN_WEIGHT
            yield Clue(
                Category.GPU,
                near_weight if is_near else LONG_WITHDRAWN_WEIGHT,
                "lost a GPU, which Kubernetes withdrew",
                f"node {one.node}: {one.what}",
                "K8s node",
                one.at_s if is_near else None,
                pod=pods[one.node].name,
                node=one.node,
            )


def _of_hang(store: Store, run: RunView, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    """From the dumps of ranks without progress at the end of the attempt, else from its alert."""
    found = last_verdict(run, attempt)
    if found is not None and found.is_late and found.confidence is not Confidence.LOW:
        yield Clue(
            _HANG_CATEGORIES.get(found.kind, Category.HANG), HANG_WEIGHT, "blocked the other ranks",
            found.sentence, "cockpit hang", end_s - found.idle_s if end_s < math.inf else None,
            found.ranks,
        )  # fmt: skip
        return
    for view in [*store.alerts.values(), *store.alerts_past]:
        finding, raised_s = view.alert.finding, view.alert.raised_s
        over_s = view.cleared_s if view.cleared_s is not None else math.inf
        is_ours = finding.kind == "hang" and finding.run_id == run.id
        if is_ours and (attempt.started_s or 0.0) <= raised_s <= end_s <= over_s + AFTER_S:
            kind = next((k for k in Kind if finding.why.startswith(f"{k.value},")), Kind.USER)
            named = RANKS_WITHIN.search(finding.what.lower())
            yield Clue(
                _HANG_CATEGORIES.get(kind, Category.HANG), HANG_WEIGHT, "blocked the other ranks",
                finding.what, "alert hang", raised_s, numbers(named[1]) if named else (),
            )  # fmt: skip


def _of_xid(run: RunView, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    for rank in run.ranks.values():
        sample = rank.sample
        if sample is None or sample.attempt != attempt.number or sample.gpu_xid is None:
            continue
        if _is_near(sample.at_s, attempt, end_s):
            text = f"Xid {sample.gpu_xid}"
            if (found := clue_of(text, "NVML", sample.at_s, ranks=(rank.rank,))) is not None:
                yield found


def _of_drills(
    store: Store, run: RunView, attempt: AttemptView, end_s: float, others: Sequence[Clue]
) -> Iterator[Clue]:
    """Of the faults that were injected into the attempt: strong where nothing contradicts them."""
    for drill in store.drills:
        by_guard = drill.fault == GUARD_RESTART
        names = (Category.HANG,) if by_guard else DRILLS.get(drill.fault)
        hit = drill.run_id == run.id and drill.attempt in (0, attempt.number)
        if names is None or not hit or not _is_near(drill.injected_s, attempt, end_s):
            continue
        strong = [clue for clue in others if not clue.is_victim and clue.weight >= EXCEPTION]
        agreeing = max(
            (clue for clue in strong if clue.category in names), key=_weight, default=None
        )
        contradicting = [clue for clue in strong if clue.category not in {*names, *EFFECTS}]
        yield Clue(
            agreeing.category if agreeing is not None else names[0],
            OTHER_DRILL_WEIGHT if contradicting and agreeing is None else DRILL_WEIGHT,
            "made the run hang until the guard ended it"
            if by_guard
            else f"was hit by the drill {drill.fault}",
            _drill_text(drill),
            "drill",
            drill.injected_s,
            drill.ranks,
            drill.pods[0] if len(drill.pods) == 1 else "",
        )


def _weight(clue: Clue) -> int:
    return clue.weight


def _drill_text(drill: Drill) -> str:
    return f"drill {drill.id}: {drill.fault} of {drill.target}"


def _located(store: Store, attempt: AttemptView, clue: Clue) -> Clue:
    """With the rank's pod and node, or the pod's ranks."""
    if clue.ranks and not clue.pod:
        placed = [p for p in attempt.placements if p.rank in clue.ranks]
        ips = {p.node_ip for p in placed}
        if len(ips) == 1:
            ip = ips.pop()
            pod = _pod_at(store, ip)
            node = (pod.host if pod is not None else "") or placed[0].node_id
            removed = (past.name for past in store.past.pods.values() if ip and past.ip == ip)
            name = pod.name if pod is not None else next(removed, "")
            return replace(clue, pod=name, node=clue.node or node)
    elif clue.pod and not clue.ranks:
        past_pod = store.past.pods.get(clue.pod)
        ip = store.pods[clue.pod].ip if clue.pod in store.pods else past_pod.ip if past_pod else ""
        ranks = tuple(p.rank for p in attempt.placements if ip and p.node_ip == ip)
        return replace(clue, ranks=ranks)
    return clue


def _pod_at(store: Store, ip: str) -> Pod | None:
    return next((pod for pod in store.pods.values() if ip and pod.ip == ip), None)


def _hosts(store: Store, attempt: AttemptView) -> list[Pod]:
    """The pods that host ranks, and the head."""
    ips = _ips(attempt)
    return [pod for pod in store.pods.values() if pod.ip in ips or pod.node_type is NodeType.HEAD]


def _ips(attempt: AttemptView) -> set[str]:
    return {placement.node_ip for placement in attempt.placements} - {""}


def _is_near(at_s: float, attempt: AttemptView, end_s: float) -> bool:
    begin_s = max(attempt.started_s or 0.0, end_s - BEFORE_S) if end_s < math.inf else 0.0
    return begin_s <= at_s <= end_s + AFTER_S
