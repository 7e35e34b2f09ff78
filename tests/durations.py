"""Seconds of each test file, from the reports of whole runs: `tests/durations.tsv`.

`pytest --junitxml=quick.xml; pytest -m slow --junitxml=slow.xml`, then
`python -m tests.durations quick.xml slow.xml "2 cores, Intel Xeon"` writes the table, longest
first. It shows what to make faster, and which lane a test belongs to.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

TABLE = Path(__file__).with_suffix(".tsv")


def rows(lane: str, report: Path) -> list[tuple[float, int, str, str]]:
    """Return (seconds, tests, lane, file) of each file in a JUnit report, longest first."""
    seconds: dict[str, float] = defaultdict(float)
    tests = Counter[str]()
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["classname"].replace(".", "/") + ".py"
        seconds[name] += float(case.attrib["time"])
        tests[name] += 1
    return sorted(((seconds[name], tests[name], lane, name) for name in tests), reverse=True)


def main(quick: str, slow: str, machine: str) -> None:
    found = [*rows("quick", Path(quick)), *rows("slow", Path(slow))]
    lines = [f"# {machine}", "seconds\ttests\tlane\tfile"]
    lines += [f"{took:.1f}\t{count}\t{lane}\t{name}" for took, count, lane, name in found]
    for lane in ("quick", "slow"):
        total = sum(took for took, _, of, _ in found if of == lane)
        count = sum(count for _, count, of, _ in found if of == lane)
        lines.insert(2, f"{total:.1f}\t{count}\t{lane}\t(all)")
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
