"""Compare all training jobs: `python -m tests.bench.methods [JOB…]`.

All jobs have the same model and data, and cockpit launches them. On a local cluster of two workers
of one CPU, one after the other, alternating: the time to the first step, the throughput after the
first steps, the memory of the ranks, and the size of a checkpoint. All numbers are those that
cockpit shows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cockpit.backends.local import LocalBackend
from cockpit.launch import submission
from cockpit.model.run import RunState
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.store.run import RunView
from cockpit.store.store import Store
from tests.bench.cluster import two_workers
from tests.bench.table import load, say

JOBS = (
    "baseline",
    "ddp_torchrun",
    "ddp",
    "ray_data",
    "checkpointed",
    "elastic",
    "fsdp2",
    "pipeline",
)
COMMON = {
    "model": "gpt-mini",
    "data": "synthetic-tokens",
    "sequence_length": "128",
    "vocabulary": "256",
    "examples": "2048",
    "epochs": "1",
    "gpu": "false",
}
ALONE = {"baseline": {"workers": "1", "batch_size": "16"}}
"""One process has the examples of both."""
TOGETHER = {"workers": "2", "batch_size": "8"}
OWN = {
    "elastic": {"min_workers": "1"},
    "pipeline": {"batch_size": "2", "accumulate": "8"},
}
SKIPPED_STEPS = 16
"""At the start of each run: torch and the caches warm up."""
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Row:
    job: str
    to_first_step_s: float
    samples_per_s: float
    """Of the run: the examples of its steady steps, by the time that they took."""
    rank_bytes: float
    """The most that a rank's process had resident."""
    checkpoint_bytes: float
    loss: float


def measured(session: Session, backend: LocalBackend, job: str, storage: Path) -> Row:
    settings = {**COMMON, **(ALONE.get(job) or TOGETHER), **OWN.get(job, {})}
    began_s = session.clock()
    launched = session.call(_launch(backend, job, settings | {"storage_path": str(storage)}))

    def run_of(store: Store) -> RunView | None:
        return next((r for r in store.runs.values() if r.submission_id == launched), None)

    def over(store: Store) -> bool:
        run = run_of(store)
        return run is not None and run.state.is_over

    if not session.wait(over, TIMEOUT_S):
        raise TimeoutError(f"{job} did not end: {session.store.jobs.get(launched)}")
    session.drain()
    run = run_of(session.store)
    assert run is not None
    if run.state is not RunState.FINISHED:
        raise RuntimeError(f"{job}: {run.state} {session.store.jobs.get(launched)}")
    attempt = run.attempts[max(run.attempts)]
    assert attempt.first_step_s is not None
    return Row(
        job,
        attempt.first_step_s - began_s,
        _pace(run),
        max(max(rank.curves["memory_bytes"].values) for rank in run.ranks.values()),
        float(run.checkpoints[-1][1].size_bytes or 0),
        run.metrics["held_out_loss"],
    )


def _pace(run: RunView) -> float:
    """Of all ranks, once each has done the first steps."""
    curve = run.curves["samples_per_s"]
    steady = list(curve.values)[len(curve) // 3 :]
    return statistics.median(steady)


async def _launch(backend: LocalBackend, job: str, settings: dict[str, str]) -> str:
    async with Dashboard(backend.dashboard) as dashboard:
        return (await submission.launch(dashboard, submission.bundled_spec(job, settings))).id


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| job | to the first step | samples/s | of `ddp` | memory of a rank | checkpoint "
        "| held-out loss |",
        "|---|---|---|---|---|---|---|",
    ]
    jobs = dict.fromkeys(row.job for row in rows)
    median = {
        job: [
            statistics.median(getattr(row, name) for row in rows if row.job == job)
            for name in (
                "to_first_step_s",
                "samples_per_s",
                "rank_bytes",
                "checkpoint_bytes",
                "loss",
            )
        ]
        for job in jobs
    }
    for job, (first_s, pace, rank_bytes, checkpoint_bytes, loss) in median.items():
        ratio = f"{pace / median['ddp'][1]:.2f}" if "ddp" in median else "–"
        cells = [
            f"`{job}`",
            f"{first_s:.1f} s",
            f"{pace:.1f}",
            ratio,
            f"{rank_bytes / 1e6:.0f} MB",
            f"{checkpoint_bytes / 1e6:.1f} MB",
            f"{loss:.3f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.methods", description=__doc__)
    parser.add_argument("jobs", nargs="*", default=JOBS)
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args(argv)
    began = load()
    rows: list[Row] = []
    with (
        TemporaryDirectory() as directory,
        two_workers() as backend,
        builder.session_on(backend) as session,
    ):
        for turn in range(args.turns):
            for job in args.jobs:
                row = measured(session, backend, job, Path(directory) / f"{job}-{turn}")
                say(f"  {row}")
                rows.append(row)
    print(f"{args.turns} turns, medians. Before it began: {began}.\n")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
