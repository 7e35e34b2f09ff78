"""A run of a store with its settings, versions and nodes, to compare it with another one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from cockpit.insight.metrics.summary import job_of, summary
from cockpit.model.tracking import TrackedRun
from cockpit.store.run import RunView
from cockpit.store.selectors import pod_of_rank
from cockpit.store.store import Store

RECOVERY = "cockpit.recovery"
"""The job's metadata with the name of its recovery profile (see cockpit.launch)."""
SUMMARIZED = ("attempts", "steps", "samples_per_s", "step_time_s", "loss", "goodput_percent")
OWN = "run_name"
"""A flag that is different for each run of a bundled job."""


def as_tracked(store: Store, run: RunView) -> TrackedRun:
    """The run as that of a tracker: flags, versions and nodes are its parameters."""
    short = summary(store, run)
    numbers = {name: getattr(short, name) for name in SUMMARIZED}
    if short.started_s is not None and short.ended_s is not None:
        numbers["duration_s"] = short.ended_s - short.started_s
    metrics = run.metrics | {name: float(n) for name, n in numbers.items() if n is not None}
    return TrackedRun(
        run.id,
        run.name or run.id,
        short.job,
        run.state.value,
        short.started_s,
        short.ended_s,
        params={name: value for name, value in _parameters(store, run) if value},
        metrics=metrics,
    )


def _parameters(store: Store, run: RunView) -> Iterator[tuple[str, str]]:
    job = store.jobs.get(run.submission_id)
    yield "job", job_of(store, run)
    if job is not None:
        yield from _flags(job.entrypoint)
        yield "recovery profile", job.metadata.get(RECOVERY, "")
    yield "ranks", str(run.world_size or "")
    yield "cluster", store.ref.described if store.ref is not None else ""
    yield "Ray", store.ray_version
    hosts = set()
    for rank in run.ranks.values():
        pod, placed = pod_of_rank(store, rank), rank.placement
        hosts.add((pod.host if pod is not None else "") or (placed.node_ip if placed else ""))
    yield "nodes", ", ".join(sorted(filter(None, hosts)))
    gpus = {gpu.name for node in store.nodes.values() for gpu in node.gpus}
    yield "GPUs", ", ".join(sorted(gpus))


def _flags(command: str) -> Iterator[tuple[str, str]]:
    """`--lr 0.1`, `--lr=0.1` and `--fast`, as far as the command can be split."""
    try:
        words = shlex.split(command)
    except ValueError:
        return
    for at, word in enumerate(words):
        if not word.startswith("--") or word == "--":
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            following = words[at + 1] if at + 1 < len(words) else "--"
            value = "yes" if following.startswith("--") else following
        name = name.replace("-", "_")
        if name != OWN:
            yield name, value
