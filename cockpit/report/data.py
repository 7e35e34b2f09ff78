"""Write a document as JSON, for programs: raw numbers, keys in snake_case with units."""

from __future__ import annotations

import math
from typing import Any

from cockpit.report import values
from cockpit.report.document import Document, Facts, Section, Shares, Table, Value


def data(document: Document) -> dict[str, Any]:
    """JSON-ready. Without the curves, which `cockpit export` has; not finite numbers are text."""
    return {
        "name": values.text(document.title),
        "verdict": values.text(document.verdict, 1_000),
        "outcome": document.tone.value,
        "begin_s": document.begin_s,
        "run": _facts(document.facts),
        "sections": {
            section.name: reported
            for section in document.sections
            if (reported := _section(section))
        },
        "marks": [
            {"at_s": mark.at_s, "kind": mark.kind.value, "label": values.text(mark.label)}
            for mark in document.marks
        ],
    }


def _section(section: Section) -> dict[str, Any]:
    reported: dict[str, Any] = {}
    facts: list[dict[str, Any]] = []
    for block in section.blocks:
        match block:
            case Facts():
                facts.append(_facts(block))
            case Table():
                reported.setdefault(block.name, []).extend(_rows(block))
            case Shares():
                reported["shares_percent"] = {s.name: _value(s.percent) for s in block.shares}
            case _:
                pass
    if len(facts) == 1:
        reported = {**facts[0], **reported}
    elif facts:
        reported["items"] = facts
    return reported


def _facts(facts: Facts) -> dict[str, Any]:
    return {fact.name: _value(fact.value) for fact in facts.facts}


def _rows(table: Table) -> list[dict[str, Any]]:
    return [
        {column.name: _value(value) for column, value in zip(table.columns, row, strict=True)}
        for row in table.rows
    ]


def _value(value: Value) -> Value:
    if isinstance(value, str):
        return values.text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
