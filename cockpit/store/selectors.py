"""Queries of the store that several views share. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cockpit.model.cluster import Node, NodeType, Pod
from cockpit.model.run import Job, RunState
from cockpit.model.tracking import PodRefs
from cockpit.store.run import RankView, RunView
from cockpit.store.store import Store

STALE_AFTER_S = 5.0
"""Older than this, a number is shown with its age and in grey."""


def current_run(store: Store) -> RunView | None:
    """Return the newest run with ranks, else the newest unfinished run, else the newest.

    A run that waits for its first ranks does not hide one that has them.
    """
    runs = sorted(store.runs.values(), key=lambda run: run.started_s)
    going = [run for run in runs if not run.state.is_over]
    found = [run for run in going if run.attempts] or going or runs
    return found[-1] if found else None


def retried_job(store: Store, run: RunView) -> Job | None:
    """The RayJob of a run that has failed, while KubeRay tries it again, or decides whether to."""
    uid = store.rayjobs.get(run.submission_id)
    if not uid or not run.state.is_over or run.state is RunState.FINISHED:
        return None
    of_run = (job for job in store.jobs_by_source.get("backend", ()) if job.rayjob_uid == uid)
    return next((job for job in of_run if job.retries and not job.status.is_over), None)


def going_run(store: Store) -> RunView | None:
    """The current run, unless it is over."""
    run = current_run(store)
    return None if run is None or run.state.is_over else run


def pod_of_rank(store: Store, rank: RankView) -> Pod | None:
    """The pod on whose address the rank was placed."""
    if rank.placement is None:
        return None
    return next((pod for pod in store.pods.values() if pod.ip == rank.placement.node_ip), None)


def reports_traffic(node: Node) -> bool:
    """Whether Ray measures the node's traffic.

    Ray counts the interfaces whose names begin with `e` (reporter_agent.py), so it reports zero for
    a node with others, which exchanges messages with its head all the time.
    """
    return bool(node.received_bytes_per_s or node.sent_bytes_per_s)


def pods_without_traffic(store: Store) -> PodRefs:
    """The pods of a Kubernetes cluster whose living Ray nodes report no traffic."""
    if store.ref is None or store.ref.backend != "kuberay":
        return PodRefs()
    without = {node.ip for node in store.nodes.values() if node.alive and not reports_traffic(node)}
    pods = (pod for pod in store.pods.values() if pod.ip in without and pod.ended_s is None)
    return PodRefs(store.ref.namespace, frozenset(pod.name for pod in pods))


def ranks_on_pod(run: RunView | None, pod: Pod) -> tuple[int, ...]:
    """The ranks of the run's newest attempt that were placed on the pod."""
    attempt = run.attempt if run else None
    if attempt is None or attempt.ended_s is not None or not pod.ip:
        return ()
    return tuple(sorted(p.rank for p in attempt.placements if p.node_ip == pod.ip))


def pods_in_order(store: Store) -> list[Pod]:
    """The head first, then by group and age."""
    return sorted(
        store.pods.values(),
        key=lambda pod: (pod.node_type is not NodeType.HEAD, pod.group, pod.created_s, pod.name),
    )


def ranks_in_order(run: RunView) -> list[RankView]:
    """The ranks of the newest attempt; ranks that an elastic resize took away are left out."""
    return [view for _, view in sorted(run.ranks.items()) if view.placement or not run.attempts]


LOSS_NAMES = ("loss", "train_loss", "train/loss", "training_loss", "eval_loss", "val_loss")


def loss_of(run: RunView) -> float | None:
    """The newest value of the ranks, else (for a script that reports no steps) of the run."""
    reported = run.curves["loss"].last
    if reported is not None:
        return reported
    return next((run.metrics[name] for name in LOSS_NAMES if name in run.metrics), None)


STEP_NAMES = ("step", "global_step")


def step_of(run: RunView) -> int | None:
    """The newest value of the ranks, else (for a script that reports no steps) of the run."""
    return reported_step(run.metrics) if run.step is None else run.step


def reported_step(metrics: Mapping[str, float]) -> int | None:
    """The step among what a script gave to its report."""
    reported = (metrics[name] for name in STEP_NAMES if name in metrics)
    return next((int(value) for value in reported if math.isfinite(value)), None)


def only_reports(run: RunView) -> bool:
    """Whether the script reports no steps, because it does not use telemetry."""
    return not run.samples_seen and run.reported_s is not None


def age_s(at_s: float | None, now_s: float) -> float | None:
    """Seconds since; never negative, since clocks of two machines differ."""
    return None if at_s is None else max(0.0, now_s - at_s)


def stale_sources(store: Store, now_s: float) -> list[tuple[str, float | None, str]]:
    """Return (name, age in seconds or None without an update, reason) of each stale source."""
    found = []
    for state in store.sources.values():
        if state.absent:
            continue
        age = age_s(state.ok_s, now_s)
        # An idle source reports when its next update is due: it is not stale before.
        overdue_s = age_s(max(state.ok_s or 0.0, state.retry_at_s or 0.0), now_s)
        if not state.ok or age is None or overdue_s is None or overdue_s > STALE_AFTER_S:
            found.append((state.name, age, state.error))
    return found
