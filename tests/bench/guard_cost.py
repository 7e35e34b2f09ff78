"""How long a hang lasts with a guard: `python -m tests.bench.guard_cost [--hangs 2]`.

A real run with 2 ranks on local pods, with one pod more than ranks, on a separate cluster for each
recovery profile. Rank 1 is stopped with SIGSTOP, or sleeps in user code, alternating. A guard whose
policy is to restart follows the run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from cockpit.model.recovery import PROFILES
from tests.bench.table import Line, Table, load, say, show
from tests.guard.hung_run import Hang, hung_run

KINDS = {"frozen": "rank 1 is stopped (SIGSTOP)", "user code": "rank 1 sleeps in user code"}
RECOVERED_WITHIN_S = 15.0
WHOLE_WITHIN_S = 45.0


def measure(profile: str, hangs: int) -> list[Hang]:
    say(f"starting a run with the profile {profile} …")
    found = []
    with TemporaryDirectory() as directory, hung_run(Path(directory), PROFILES[profile]) as run:
        for _ in range(hangs):
            for kind in KINDS:
                found.append(run.hang(kind))
                say(str(found[-1]))
    return found


def tabled(found: Sequence[Hang], began: str) -> Table:
    lines = []
    for profile in dict.fromkeys(hang.profile for hang in found):
        # Ray's default has no spare processes: what it takes is shown, and nothing is promised.
        is_promised = profile == "fast"
        for kind, text in KINDS.items():
            of = [hang for hang in found if (hang.profile, hang.kind) == (profile, kind)]
            lines += _lines(f"{text}, profile {profile}", of, is_promised)
    return Table(
        "What a hang costs with a guard",
        "A run of 2 ranks with gloo on a local cluster, with a step every 0.1 s and a checkpoint "
        "every second, watched by `cockpit guard --action restart`. Median (minimum–maximum), in "
        "seconds since the hang began; `detected` is the decision of the guard, at most 1 s after "
        "the verdict.",
        lines,
        began,
    )


def _lines(text: str, of: Sequence[Hang], is_promised: bool) -> list[Line]:
    if not of:
        return []
    back_s = [float("inf") if hang.recovered_s is None else hang.recovered_s for hang in of]
    whole_s = [float("inf") if hang.first_step_s is None else hang.first_step_s for hang in of]
    detected, killed = (
        _spread([getattr(hang, name) for hang in of]) for name in ("decided_s", "killed_s")
    )

    def line(what: str, value: str, worst_s: float, within_s: float) -> Line:
        target = f"≤ {within_s:g} s" if is_promised else ""
        return Line(what, value, target, worst_s <= within_s if is_promised else None)

    return [
        line(
            f"{text}, {len(of)} hangs: detection to the first new step",
            f"**{_spread(back_s)} s**",
            max(back_s),
            RECOVERED_WITHIN_S,
        ),
        *_start(text, of, is_promised),
        line(
            f"{text}: the whole hang",
            f"{_spread(whole_s)} s; detected {detected}, killed {killed}",
            max(whole_s),
            WHOLE_WITHIN_S,
        ),
    ]


def _start(text: str, of: Sequence[Hang], has_spares: bool) -> list[Line]:
    """Where the time goes without spares: a spare has used its processor time before."""
    starts_s = [hang.started_s - hang.killed_s for hang in of if hang.started_s is not None]
    if has_spares or not starts_s:
        return []
    value = f"{_spread(starts_s)} s; processor time of each {_spread([it.cpu_s for it in of])} s"
    return [Line(f"{text}: of that, the start of the new processes", value)]


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.guard_cost", description=__doc__)
    parser.add_argument("--hangs", type=int, default=2, help="of each kind, under each profile")
    parser.add_argument("--profiles", default="fast,default", help="separated by commas")
    args = parser.parse_args(argv)

    def measured() -> Table:
        began = load()
        of = [hang for name in args.profiles.split(",") for hang in measure(name, args.hangs)]
        return tabled(of, began)

    return show(measured)


if __name__ == "__main__":
    sys.exit(main())
