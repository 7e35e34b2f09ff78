"""`cockpit status` against `ray job list`: `python -m tests.bench.status_cost`.

On the same real local cluster, with a run on it and without one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from cockpit.backends.local import LocalBackend, status
from tests.bench.cluster import two_workers
from tests.bench.process import COCKPIT, RAY, Took, alternate
from tests.bench.run import training
from tests.bench.table import Line, Table, load, say, show, spread

TIMES_FASTER = 6.0
PAIRS = 7


def measure() -> Table:
    began = load()
    with two_workers() as backend:
        say("idle …")
        lines = compare(backend, "idle")
        with TemporaryDirectory() as directory, training(backend, Path(directory)):
            say("with a run …")
            lines += compare(backend, "with a run on it")
    return Table(
        "Status snapshot",
        f"A head and 2 workers; {PAIRS} pairs of each, alternating, median (quartiles). `ray job "
        "list` prints the jobs; `cockpit status -o json` prints cluster, groups, pods, jobs, run, "
        "ranks and sources.",
        lines,
        began,
    )


def compare(backend: LocalBackend, what: str) -> list[Line]:
    cluster = status(backend.ref.name)
    assert cluster is not None
    env = {
        "RAY_API_SERVER_ADDRESS": cluster.dashboard_url,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(cluster.token_path),
    }
    ray, own = alternate(
        [RAY, "job", "list"], [COCKPIT, "status", "--local", "-o", "json"], PAIRS, env
    )
    return [
        *(
            Line(f"{what}: `{name}`", f"{wall(took)} wall time, {cpu(took)} of CPU")
            for name, took in (("ray job list", ray), ("cockpit status --local -o json", own))
        ),
        times_faster(f"{what}: speedup, wall time", [t.wall_s for t in ray],
                     [t.wall_s for t in own]),
        times_faster(f"{what}: reduction of CPU time", [t.cpu_s for t in ray],
                     [t.cpu_s for t in own]),
    ]  # fmt: skip


def wall(took: list[Took]) -> str:
    return spread([one.wall_s for one in took], "s", 2)


def cpu(took: list[Took]) -> str:
    return spread([one.cpu_s for one in took], "s", 2)


def times_faster(what: str, theirs: list[float], ours: list[float]) -> Line:
    ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
    passed = median(ratios) >= TIMES_FASTER
    return Line(what, spread(ratios, digits=1), f"≥ {TIMES_FASTER:g}", passed)


if __name__ == "__main__":
    sys.exit(show(measure))
