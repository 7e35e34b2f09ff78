"""Which ends get the right cause: `python -m tests.bench.cause_corpus`.

The labelled texts of tests/causes, and what was recorded of real processes on a real Ray cluster.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.insight.causes.types import Category, Cause, Confidence
from tests.bench.table import Line, Table, load, show
from tests.causes.corpus import TEXTS, verdict
from tests.causes.real import DRILLED, RECORDED, UNSURE, drilled_causes, label_of, recorded_cause

RIGHT_PERCENT = 95.0


@dataclass(frozen=True, slots=True)
class Judged:
    name: str
    label: Category
    may_be_unknown: bool
    cause: Cause

    @property
    def is_right(self) -> bool:
        found = self.cause.category
        return found is self.label or (self.may_be_unknown and found is Category.UNKNOWN)


def measured() -> Table:
    began, started_s = load(), time.process_time()
    texts = [Judged(one.name, one.category, one.may_be_unknown, verdict(one)) for one in TEXTS]
    took_ms = (time.process_time() - started_s) * 1000 / len(TEXTS)
    recorded = [
        Judged(path.stem, label_of(path), label_of(path) in UNSURE, recorded_cause(path))
        for path in sorted(RECORDED.glob("*.jsonl"))
    ]
    recorded += [
        Judged(f"drill {fault}", DRILLED[fault], DRILLED[fault] in UNSURE, cause)
        for fault, cause in drilled_causes().items()
    ]
    found: dict[Category, Counter[str]] = defaultdict(Counter)
    for one in (*texts, *recorded):
        found[one.label][one.cause.category.value] += 1
    lines = [
        Line(category.value, ", ".join(f"{name} {count}" for name, count in counts.most_common()))
        for category, counts in found.items()
    ]
    lines += [
        right("texts of Ray, Kubernetes and torch: right", texts),
        right("recorded from real processes: right", recorded),
        sure_and_wrong([*texts, *recorded]),
        Line("CPU time for one text, the store included", f"{took_ms:.2f} ms"),
    ]
    return Table(
        "Which failures get the right cause",
        "In the first rows, `measure` is the true cause, and `value` the causes that cockpit "
        "found, with the number of cases.",
        lines,
        began,
    )


def right(measure: str, judged: Sequence[Judged]) -> Line:
    wrong = [one.name for one in judged if not one.is_right]
    percent = 100 * (1 - len(wrong) / len(judged))
    value = f"{len(judged) - len(wrong)} of {len(judged)} ({percent:.1f} %)"
    if wrong:
        value += f"; wrong: {', '.join(wrong)}"
    return Line(measure, value, f"≥ {RIGHT_PERCENT:g} %", percent >= RIGHT_PERCENT)


def sure_and_wrong(judged: Sequence[Judged]) -> Line:
    names = [
        one.name
        for one in judged
        if not one.is_right and one.cause.confidence is not Confidence.LOW
    ]
    value = str(len(names)) + (f": {', '.join(names)}" if names else "")
    return Line("wrong with medium or high confidence", value, "0", not names)


if __name__ == "__main__":
    sys.exit(show(measured))
