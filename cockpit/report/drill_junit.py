"""Drills as JUnit XML, for tools that show test results of a nightly job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from xml.etree import ElementTree

from msgspec import Struct

from cockpit.format import in_seconds
from cockpit.model.drill import DrillRecord, Verdict
from cockpit.report.values import text


class Case(Struct, frozen=True):
    """One test case. `ok` None: skipped."""

    name: str
    took_s: float
    ok: bool | None
    why: str
    broken: bool = False
    """It failed for another reason than what it tests."""
    output: Sequence[str] = ()


def case_of(record: DrillRecord, name: str = "") -> Case:
    """A drill as a case: its verdict, and what was measured as its output."""
    lines = [f"{probe.probe} {probe.when}: {probe.value}" for probe in record.probes]
    for measured in record.recoveries:
        lines += [
            f"{measured.drill.fault} {instant.milestone.value}: {in_seconds(instant.after_s, 1)}"
            f" ({instant.source})"
            for instant in measured.instants
        ]
        if measured.steps_lost is not None:
            lines.append(f"{measured.drill.fault} steps lost: {measured.steps_lost}")
    return Case(
        name or record.name,
        record.ended_s - record.began_s,
        record.verdict is Verdict.PASSED,
        f"{record.verdict.value}: {record.why}",
        broken=record.verdict not in (Verdict.PASSED, Verdict.FAILED),
        output=(*lines, *record.notes),
    )


def junit(suite: str, began_s: float, cases: Sequence[Case]) -> str:
    """One suite. Its texts are cleaned and masked as in the other reports, line by line."""
    made = ElementTree.Element(
        "testsuite",
        name=text(suite),
        tests=str(len(cases)),
        failures=str(sum(case.ok is False and not case.broken for case in cases)),
        errors=str(sum(case.ok is False and case.broken for case in cases)),
        skipped=str(sum(case.ok is None for case in cases)),
        time=f"{sum(case.took_s for case in cases):.3f}",
        timestamp=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began_s)),
    )
    for case in cases:
        one = ElementTree.SubElement(
            made,
            "testcase",
            classname=text(f"cockpit.drill.{suite}"),
            name=text(case.name),
            time=f"{case.took_s:.3f}",
        )
        if case.ok is None:
            ElementTree.SubElement(one, "skipped", message=text(case.why))
        elif not case.ok:
            kind = "error" if case.broken else "failure"
            ElementTree.SubElement(one, kind, message=text(case.why))
        if case.output:
            ElementTree.SubElement(one, "system-out").text = "\n".join(map(text, case.output))
    ElementTree.indent(made)
    return ElementTree.tostring(made, encoding="unicode", xml_declaration=True) + "\n"
