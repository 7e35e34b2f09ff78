"""An hour of faults on the test Kubernetes: `python -m tests.bench.soak`.

SOAK_SECONDS sets another duration, SOAK_SEED repeats one. See tests/soak/soak.py; its log is
printed on standard error.
"""

from __future__ import annotations

import os
import random
import sys

from tests.bench.table import Line, Table, load, say, show
from tests.soak.soak import GROWTH, soak

SECONDS = float(os.environ.get("SOAK_SECONDS", "3600"))
SEED = int(os.environ.get("SOAK_SEED") or random.randrange(1 << 16))


def measure() -> Table:
    began = load()
    result = soak(SECONDS, SEED, say)
    verdicts = ", ".join(f"{count} {name}" for name, count in sorted(result.verdicts().items()))
    memory = " → ".join(f"{of / 1e6:.1f}" for of in result.memory_bytes)
    problems = "; ".join(result.problems) or "nothing"
    faults = len({drill.fault for drill in result.drills})
    lines = [
        Line("drills", f"{len(result.drills)}, of {faults} faults"),
        Line("their verdicts", verdicts, "one each", all(drill.verdict for drill in result.drills)),
        Line("submissions of the job, whose head some drills kill", f"{result.submissions}"),
        Line(
            "the screen's memory, settled to the end",
            f"{memory} MB ({result.growth:+.1%})",
            f"< {GROWTH:.0%}",
            result.growth < GROWTH,
        ),
        Line("its descriptors", " → ".join(map(str, result.descriptors))),
        Line("its threads", " → ".join(map(str, result.threads))),
        Line(
            "not undone, left behind, or printed as a traceback",
            problems,
            "nothing",
            not result.problems,
        ),
    ]
    return Table(
        "A soak",
        f"{result.seconds:g} s with seed {result.seed} on a Kubernetes with a RayCluster of three "
        "workers, one of them a spare: a run of 2 ranks, drills from the catalogue one after "
        "another, at most one a minute, and beside them: "
        f"{', '.join(result.disturbances)}. One screen in tmux all the while; the state directory "
        "is a disk of 64 MB.",
        lines,
        began,
    )


if __name__ == "__main__":
    sys.exit(show(measure))
