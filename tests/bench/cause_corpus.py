"""Which ends get the right cause: `python -m tests.bench.cause_corpus`.

The labelled texts of tests/causes, and what was recorded of real processes on a real Ray cluster.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict

from cockpit.insight.causes.types import Category, Confidence
from tests.bench.table import Line, Table, load, show
from tests.causes.corpus import TEXTS, Case, verdict

RIGHT_PERCENT = 95.0


def measured() -> Table:
    began, started_s = load(), time.perf_counter()
    verdicts = [(case, verdict(case)) for case in TEXTS]
    took_ms = (time.perf_counter() - started_s) * 1000 / len(TEXTS)
    found: dict[Category, Counter[str]] = defaultdict(Counter)
    for case, cause in verdicts:
        found[case.category][cause.category.value] += 1
    lines = [
        Line(category.value, ", ".join(f"{name} {count}" for name, count in counts.most_common()))
        for category, counts in found.items()
    ]
    wrong = [(case, cause) for case, cause in verdicts if not is_right(case, cause.category)]
    sure = [case.name for case, cause in wrong if cause.confidence is not Confidence.LOW]
    percent = 100 * (1 - len(wrong) / len(TEXTS))
    lines += [
        Line(
            "right",
            f"{len(TEXTS) - len(wrong)} of {len(TEXTS)} ({percent:.1f} %)"
            + (f"; wrong: {', '.join(case.name for case, _ in wrong)}" if wrong else ""),
            f"≥ {RIGHT_PERCENT:g} %",
            percent >= RIGHT_PERCENT,
        ),
        Line(
            "wrong with medium or high confidence",
            f"{len(sure)}" + (f": {', '.join(sure)}" if sure else ""),
            "0",
            not sure,
        ),
        Line("time for one, the store included", f"{took_ms:.2f} ms"),
    ]
    return Table(
        "Which ends get the right cause",
        "Each row is a label, with the verdicts on its cases.",
        lines,
        began,
    )


def is_right(case: Case, category: Category) -> bool:
    return category is case.category or (case.may_be_unknown and category is Category.UNKNOWN)


if __name__ == "__main__":
    sys.exit(show(measured))
