"""Cockpit and k9s on the same pods: `python -m tests.bench.beside_k9s [WORKERS] [--record]`.

Both run on a pseudo-terminal of 200×50, alternating, so that other programs affect both. The
variable K9S is the path of k9s, if it is not on PATH. Without it, the values of k9s are read from
the file beside this module, which `--record` writes: cockpit is then compared with another run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from tests.bench.many_pods import resident_mb
from tests.bench.process import COCKPIT, cpu_of
from tests.bench.simulated import NAME, NODES, Simulated, simulated
from tests.bench.table import Line, Table, load, say, show
from tests.bench.terminal import Terminal

STARTS = 5
SETTLED_S, REST_S = 20.0, 40.0
KEYS = 200
WORKERS = 1_000
FIRST_ROW = f"{NAME}-gpu-worker-0"
FRAMES_MS = 2 * 1000 / 30
"""Two frames at 30 a second."""
RECORD = Path(__file__).with_suffix(".json")


@dataclass(frozen=True, slots=True)
class Costs:
    """What one program needed."""

    first_rows_s: float
    cpu_percent: float
    """Of one core, at rest."""
    key_median_ms: float
    key_99_ms: float
    bytes_per_s: float
    """To the terminal, at rest."""
    resident_mb: float


@dataclass
class Program:
    argv: list[str]
    opens: str
    """The keys that open the pods."""
    environment: dict[str, str]
    first_rows_s: list[float] = field(default_factory=list)

    def start(self) -> None:
        with Terminal(self.argv, self.environment) as terminal:
            terminal.type(self.opens)
            self.first_rows_s.append(terminal.wait_for(FIRST_ROW, 60) - terminal.began_s)

    def costs(self) -> Costs:
        """Of one more start, besides the starts that were measured."""
        with Terminal(self.argv, self.environment) as terminal:
            terminal.type(self.opens)
            terminal.wait_for(FIRST_ROW, 60)
            terminal.bytes_in(SETTLED_S)
            cpu_s = cpu_of(terminal.pid)
            sent = terminal.bytes_in(REST_S)
            cpu_s = cpu_of(terminal.pid) - cpu_s
            memory = resident_mb(terminal.pid)
            keys_ms = [1000 * terminal.answer_s("j") for _ in range(KEYS)]
        return Costs(
            median(self.first_rows_s),
            100 * cpu_s / REST_S,
            median(keys_ms),
            quantiles(keys_ms, n=100)[98],
            sent / REST_S,
            memory,
        )


def measure(workers: int, record: bool) -> Table:
    """Raises FileNotFoundError when there is neither k9s nor a record of this size."""
    k9s = os.environ.get("K9S") or shutil.which("k9s")
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if k9s is None and str(workers) not in recorded:
        raise FileNotFoundError("no k9s on PATH or in K9S, and no record of it for this size")
    began = load()
    with simulated(workers) as cluster, TemporaryDirectory() as empty:
        environment = {**cluster.environment, "XDG_STATE_HOME": empty, "XDG_CONFIG_HOME": empty}
        ours = Program([COCKPIT, *cluster.arguments], "4", environment)
        programs = [ours] if k9s is None else [ours, _k9s(k9s, cluster, environment)]
        for number in range(STARTS):
            say(f"start {number + 1} of {STARTS} …")
            for program in programs:
                program.start()
        say(f"at rest, and {KEYS} keys …")
        costs = [program.costs() for program in programs]
    how = "measured in the same run"
    if k9s is None:
        rival = Costs(**recorded[str(workers)]["costs"])
        how = f"of a run on {recorded[str(workers)]['date']}, not of this one"
    else:
        rival = costs[1]
    if record and k9s is not None:
        date = time.strftime("%Y-%m-%d", time.gmtime())
        recorded[str(workers)] = {"date": date, "costs": asdict(rival)}
        RECORD.write_text(json.dumps(recorded, indent=1) + "\n")
    return Table(
        f"Beside k9s, {workers:,} pods",
        f"A real API server with KWOK, whose {NODES} nodes report 2.5 times a second together, and "
        f"{workers:,} pods of 10 KB, on the same cores. {STARTS} starts of each; then {REST_S:g} s "
        f"at rest, {SETTLED_S:g} s after the first rows; then {KEYS} presses of `j`. The values of "
        f"k9s are {how}.",
        list(_lines(costs[0], rival)),
        began,
    )


def _lines(ours: Costs, rival: Costs) -> Sequence[Line]:
    def ratio(name: str, mine: float, other: float, unit: str, goal: float | None = None) -> Line:
        times = mine / other
        value = f"{mine:.2f} {unit}, k9s {other:.2f} {unit}: {times:.2f} ×"
        if goal is None:
            return Line(name, value)
        return Line(name, value, f"≤ {goal:g} ×", times <= goal)

    sent = f"{ours.bytes_per_s:,.0f} bytes/s, k9s {rival.bytes_per_s:,.0f} bytes/s"
    keys = f"{ours.key_99_ms:.1f} ms, k9s {rival.key_99_ms:.1f} ms"
    return [
        ratio("start to first rows", ours.first_rows_s, rival.first_rows_s, "s", 0.4),
        ratio("CPU at rest, of one core", ours.cpu_percent, rival.cpu_percent, "%", 0.25),
        ratio("key to output, median", ours.key_median_ms, rival.key_median_ms, "ms", 1.0),
        Line("key to output, 99 %", keys, f"≤ {FRAMES_MS:.0f} ms", ours.key_99_ms <= FRAMES_MS),
        Line("to the terminal at rest", sent, "≤ 1,000 bytes/s", ours.bytes_per_s <= 1_000),
        ratio("resident memory", ours.resident_mb, rival.resident_mb, "MB"),
    ]


def _k9s(path: str, cluster: Simulated, environment: dict[str, str]) -> Program:
    config = f"{environment['XDG_CONFIG_HOME']}/k9s"
    argv = [path, "--context", cluster.kubeconfig.stem, "-n", NAME, "-c", "pods", "--readonly"]
    return Program(argv, "", {**environment, "K9S_CONFIG_DIR": config})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("workers", type=int, nargs="?", default=WORKERS)
    parser.add_argument("--record", action="store_true", help="keep the values of k9s")
    given = parser.parse_args()
    sys.exit(show(lambda: measure(given.workers, given.record)))
