"""Cockpit and k9s on the same pods: `python -m tests.bench.beside_k9s K9S [WORKERS]`.

`K9S` is the program, built from its repository with `go build`. Both are on a pseudo-terminal of
200×50, and take turns, so that what disturbs one disturbs the other.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from tests.bench.many_pods import resident_mb
from tests.bench.process import COCKPIT, cpu_of
from tests.bench.simulated import NAME, NODES, Simulated, simulated
from tests.bench.table import Line, Table, load, say, show
from tests.bench.terminal import Terminal

STARTS = 3
SETTLED_S, REST_S = 20.0, 40.0
KEYS = 200
FIRST_ROW = f"{NAME}-gpu-worker-0"
GOALS = {"rows": 0.4, "cpu": 0.25, "p50": 1.0}
MOST_BYTES_PER_S = 1_000.0


@dataclass
class Measured:
    """One program: each list has a value for each start."""

    argv: list[str]
    opens: str
    """The keys that open the pods."""
    environment: dict[str, str]
    rows_s: list[float] = field(default_factory=list)
    keys_ms: list[float] = field(default_factory=list)
    cpu_percent: list[float] = field(default_factory=list)
    bytes_per_s: list[float] = field(default_factory=list)
    resident_mb: list[float] = field(default_factory=list)

    def start(self) -> None:
        with Terminal(self.argv, self.environment) as terminal:
            terminal.type(self.opens)
            self.rows_s.append(terminal.wait_for(FIRST_ROW, 60) - terminal.began_s)

    def rest(self) -> None:
        with Terminal(self.argv, self.environment) as terminal:
            terminal.type(self.opens)
            terminal.wait_for(FIRST_ROW, 60)
            terminal.bytes_in(SETTLED_S)
            cpu = cpu_of(terminal.pid)
            self.bytes_per_s.append(terminal.bytes_in(REST_S) / REST_S)
            self.cpu_percent.append(100 * (cpu_of(terminal.pid) - cpu) / REST_S)
            self.resident_mb.append(resident_mb(terminal.pid))
            self.keys_ms += [1000 * terminal.answer_s("j") for _ in range(KEYS)]


def measure(k9s: str, workers: int) -> Table:
    began = load()
    with simulated(workers) as cluster, TemporaryDirectory() as empty:
        ours, theirs = _programs(cluster, k9s, empty)
        for number in range(STARTS):
            say(f"start {number + 1} of {STARTS} …")
            ours.start()
            theirs.start()
        for who in ("cockpit", "k9s"):
            say(f"{who} at rest for {SETTLED_S + REST_S:g} s …")
            (ours if who == "cockpit" else theirs).rest()
    cpu, p50 = _mean(ours.cpu_percent), median(ours.keys_ms)
    p99, theirs_99 = (quantiles(one.keys_ms, n=100)[98] for one in (ours, theirs))
    sent = _mean(ours.bytes_per_s)
    lines = [
        _line("first rows", "s", median(ours.rows_s), median(theirs.rows_s), GOALS["rows"]),
        _line("CPU at rest, % of one core", "", cpu, _mean(theirs.cpu_percent), GOALS["cpu"]),
        _line("key to paint, median", "ms", p50, median(theirs.keys_ms), GOALS["p50"]),
        _line("key to paint, 99 %", "ms", p99, theirs_99),
        Line(
            "bytes a second to the terminal at rest",
            f"{sent:.0f} beside {_mean(theirs.bytes_per_s):.0f}",
            f"≤ {MOST_BYTES_PER_S:,.0f}",
            sent <= MOST_BYTES_PER_S,
        ),
        _line("resident memory", "MB", _mean(ours.resident_mb), _mean(theirs.resident_mb)),
    ]
    how = (
        f"A real API server with KWOK, {NODES} nodes that report 2.5 times a second together, and "
        f"{workers:,} pods, on the same machine."
    )
    return Table(f"Beside k9s, {workers:,} pods", how, lines, began)


def _programs(cluster: Simulated, k9s: str, empty: str) -> tuple[Measured, Measured]:
    environment = {**cluster.environment, "XDG_STATE_HOME": empty, "XDG_CONFIG_HOME": empty}
    environment["K9S_CONFIG_DIR"] = f"{empty}/k9s"
    context, namespace = cluster.kubeconfig.stem, NAME
    argv = [k9s, "--context", context, "-n", namespace, "-c", "pods", "--readonly"]
    return (
        Measured([COCKPIT, *cluster.arguments], "4", environment),
        Measured(argv, "", environment),
    )


def _line(what: str, unit: str, ours: float, theirs: float, goal: float | None = None) -> Line:
    times = ours / theirs if theirs else 0.0
    value = f"{ours:.2f} beside {theirs:.2f} {unit}".strip() + f" ({times:.2f} ×)"
    if goal is None:
        return Line(what, value)
    return Line(what, value, f"≤ {goal:g} ×", times <= goal)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
    sys.exit(show(lambda: measure(sys.argv[1], count)))
