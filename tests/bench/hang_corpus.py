"""Which hangs are explained, and which healthy runs are not: `python -m tests.bench.hang_corpus`.

Real processes with gloo, a cause for each of the kinds, with 2 to 4 ranks. The watchdog's times are
divided by 5, and the table has them multiplied by it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.bench.table import Line, Table, load, show
from tests.hangs.corpus import SPEED, Watched, played
from tests.hangs.scenarios import HANGS, HEALTHY, variants
from tests.hangs.test_corpus import SLOW, VERDICT_WITHIN_S


def measured() -> Table:
    began = load()
    with tempfile.TemporaryDirectory() as folder:
        hangs = played(variants(HANGS), True, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        healthy = played(variants(HEALTHY), False, Path(folder))
    lines = [line(name, of) for name, of in by_scenario(hangs).items()]
    right = sum(is_right(each) for each in hangs.values())
    lines += [healthy_line(name, of) for name, of in by_scenario(healthy).items()]
    alarms = [name for name, each in healthy.items() if each.verdict is not None]
    lines += [
        Line("hangs explained", f"{right} of {len(hangs)}", "all", right == len(hangs)),
        Line(
            f"healthy runs of {len(HEALTHY)} kinds with a verdict",
            f"{len(alarms)} of {len(healthy)}" + (f": {', '.join(alarms)}" if alarms else ""),
            "none",
            not alarms,
        ),
    ]
    return Table(
        "Which hangs are explained",
        "Each scenario is a run of 2 to 4 real processes with gloo. A row has the number of runs "
        "whose verdict has the right kind and ranks, the kinds of the verdicts, and the time from "
        f"the last progress to the verdict. The watchdog runs {SPEED:g} times as fast as usual, "
        "and the times are multiplied by this factor.",
        lines,
        began,
    )


def by_scenario(found: dict[str, Watched]) -> dict[str, list[Watched]]:
    groups: dict[str, list[Watched]] = defaultdict(list)
    for name, each in found.items():
        groups[name.partition(":")[0]].append(each)
    return groups


def is_right(each: Watched) -> bool:
    _, kind, ranks = HANGS[each.name.partition(":")[0]]
    found = each.verdict
    return found is not None and found.kind is kind and ranks in (None, found.ranks)


def line(name: str, of: list[Watched]) -> Line:
    kinds = sorted({each.verdict.kind.value if each.verdict else "none" for each in of})
    took = [each.took_s for each in of if each.verdict is not None]
    right = sum(map(is_right, of))
    when = f", {statistics.median(took):.0f} s (max {max(took):.0f})" if took else ""
    slow = name in SLOW
    in_time = slow or all(each <= VERDICT_WITHIN_S for each in took)
    target = "right" if slow else f"right, ≤ {VERDICT_WITHIN_S:g} s"
    value = f"{right} of {len(of)}: {', '.join(kinds)}{when}"
    return Line(f"`{name}`", value, target, right == len(of) and in_time)


def healthy_line(name: str, of: list[Watched]) -> Line:
    kinds = sorted(each.verdict.kind.value for each in of if each.verdict is not None)
    none = len(of) - len(kinds)
    value = f"{none} of {len(of)}: none" + (f"; {', '.join(kinds)}" if kinds else "")
    return Line(f"healthy: `{name}`", value, "none", not kinds)


if __name__ == "__main__":
    sys.exit(show(measured))
