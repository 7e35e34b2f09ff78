"""Cockpit on a RayCluster of 1,000 workers: `python -m tests.bench.many_pods [WORKERS]`.

The API server, etcd and KWOK run on the same cores and take their part of them.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from tests.bench.process import COCKPIT, cpu_of, run
from tests.bench.simulated import NODES, Simulated, changing, simulated
from tests.bench.table import Line, Table, load, say, show, spread
from tests.bench.terminal import Terminal

STARTS = 5
REST_S = 20.0
SETTLED_S = 75.0
"""At rest is a minute without a job, a change or a key; then requests are counted."""
COUNTED_S = 60.0
KEYS = 200
CHANGES_PER_S = 50
PROMISED = 1_000


def measure(workers: int = PROMISED) -> Table:
    began = load()
    promised = workers == PROMISED
    with simulated(workers) as cluster, TemporaryDirectory() as empty:
        environment = {
            **cluster.environment,
            "XDG_STATE_HOME": empty,
            "XDG_CONFIG_HOME": empty,
        }
        rows, everything = starts(cluster, environment)
        lines = [
            promise("from the command to the first rows of pods", rows, 1.0, promised),
            promise("to all pods listed", everything, 2.5, promised),
        ]
        lines += at_rest(cluster, environment, promised)
        lines += under_change(cluster, environment, promised)
        lines.append(one_look(cluster, environment, promised))
    return Table(
        f"{workers:,} pods",
        f"A real API server with KWOK, {NODES} nodes and a RayCluster of {workers:,} workers with "
        "its pods of 10 KB each, all on the same machine; `cockpit` on a pseudo-terminal of "
        "200×50 in the Pods view.",
        lines,
        began,
    )


def starts(cluster: Simulated, environment: dict[str, str]) -> tuple[list[float], list[float]]:
    rows, everything = [], []
    for _ in range(STARTS):
        with Terminal([COCKPIT, *cluster.arguments], environment) as terminal:
            terminal.type("4")
            rows.append(terminal.wait_for("-gpu-worker-0") - terminal.began_s)
            everything.append(terminal.wait_for(_all(cluster)) - terminal.began_s)
    return rows, everything


def at_rest(cluster: Simulated, environment: dict[str, str], promised: bool) -> list[Line]:
    with Terminal([COCKPIT, *cluster.arguments], environment) as terminal:
        terminal.type("4")
        terminal.wait_for(_all(cluster))
        say(f"at rest for {SETTLED_S:g} s …")
        terminal.bytes_in(SETTLED_S)
        counted_from, cpu = time.time(), cpu_of(terminal.pid)
        terminal.bytes_in(REST_S)
        percent = 100 * (cpu_of(terminal.pid) - cpu) / REST_S
        mebibytes = resident_mb(terminal.pid)
        terminal.bytes_in(COUNTED_S - REST_S)
        asked = cluster.requests_since(counted_from)
    for request in sorted(set(asked)):
        say(f"  {asked.count(request)} × {request}")
    return [
        Line(
            "resident memory",
            f"{mebibytes:.0f} MB",
            "≤ 150 MB" if promised else "",
            mebibytes <= 150 if promised else None,
        ),
        Line(
            f"at rest, over {REST_S:g} s: of one core",
            f"{percent:.1f} %",
            "≤ 5 %" if promised else "",
            percent <= 5 if promised else None,
        ),
        Line(
            f"at rest, over {COUNTED_S:g} s: requests to the API server",
            f"{len(asked)}",
            "≤ 10" if promised else "",
            len(asked) <= 10 if promised else None,
        ),
    ]


def under_change(cluster: Simulated, environment: dict[str, str], promised: bool) -> list[Line]:
    with Terminal([COCKPIT, *cluster.arguments], environment) as terminal:
        terminal.type("4")
        terminal.wait_for(_all(cluster))
        with changing(cluster, CHANGES_PER_S) as changes:
            terminal.bytes_in(3.0)
            say(f"{KEYS} keys …")
            begun = time.time()
            took = [1000 * terminal.answer_s("j") for _ in range(KEYS)]
            seconds = time.time() - begun
            rate = sum(begun <= at for at in changes) / seconds
    middle, worst = median(took), quantiles(took, n=100)[98]
    return [
        Line(
            f"key to paint while {rate:.0f} pods a second change: median",
            f"{middle:.1f} ms",
            "≤ 10 ms" if promised else "",
            middle <= 10 if promised else None,
        ),
        Line(
            "the same, 99 %",
            f"{worst:.1f} ms",
            "≤ 50 ms" if promised else "",
            worst <= 50 if promised else None,
        ),
    ]


def one_look(cluster: Simulated, environment: dict[str, str], promised: bool) -> Line:
    argv = [COCKPIT, *cluster.arguments, "status", "-o", "json"]
    took = [run(argv, environment).wall_s for _ in range(STARTS)]
    return promise("`cockpit status -o json`", took, 0.35, promised)


def promise(what: str, took: list[float], most_s: float, promised: bool) -> Line:
    if not promised:
        return Line(what, spread(took, "s", 2))
    return Line(what, spread(took, "s", 2), f"≤ {most_s} s", median(took) <= most_s)


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _all(cluster: Simulated) -> str:
    return f"Pods · {cluster.workers + 1:,}"


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PROMISED
    sys.exit(show(lambda: measure(count)))
