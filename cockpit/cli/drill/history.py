"""`cockpit drill history|show|report`: the drills that are over."""

from __future__ import annotations

import argparse
from typing import Any

from cockpit.cli.drill import result
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.cli.recordings.report import form, save, written
from cockpit.format import in_seconds
from cockpit.insight.recovery.drill_comparison import Measure, compared, kind_of
from cockpit.model.drill import DrillRecord, KeptDrill
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.text import one_line
from cockpit.recorder.drills import DrillHistory
from cockpit.report.drill_report import drill_report

COLUMNS = (
    "name", "fault", "cluster", "workload", "profile", "started_s", "verdict", "first_step_s",
    "steps_lost", "why",
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    return {"history": _history, "show": _show, "report": _report}[args.what](args)


def _history(args: argparse.Namespace) -> int:
    if args.limit < 1:
        raise UsageError("--limit must be 1 or more.")
    kept, unreadable = DrillHistory().all()
    for one in unreadable:
        log(one_line(f"{one.path.name} cannot be read: {one.why}"))
    records = [one.record for one in kept]
    rows = [
        _row(record, records)
        for record in records
        if args.name in (*record.fault.split("+"), record.fault, record.name, "")
    ]
    tables.print_rows(
        rows[-args.limit :], COLUMNS, args.output or "table", empty="No drill is kept yet."
    )
    return int(ExitCode.DONE)


def _row(record: DrillRecord, records: list[DrillRecord]) -> dict[str, Any]:
    kind = kind_of(record)
    measures = compared(record, records)
    numbers = {measure.name: measure.value for measure in measures}
    lost = numbers.get("steps lost")
    return {
        "name": record.id,
        "drill": record.name,
        "fault": record.fault,
        "cluster": record.cluster,
        "workload": kind.workload,
        "profile": kind.profile,
        "game_day": record.game_day,
        "started_s": record.began_s,
        "ended_s": record.ended_s,
        "verdict": record.verdict,
        "why": record.why,
        "first_step_s": numbers.get("first new step"),
        "steps_lost": None if lost is None else int(lost),
        "compared": [_measure(measure) for measure in measures],
    }


def _measure(measure: Measure) -> dict[str, Any]:
    row: dict[str, Any] = tables.as_json(measure)
    return row


def _show(args: argparse.Namespace) -> int:
    history = DrillHistory()
    found = history.find(_named(args))
    records = [one.record for one in history.all()[0]]
    how = args.output or "table"
    if how != "table":
        rows = [
            result.as_row(one.record)
            | {"compared": [_measure(measure) for measure in compared(one.record, records)]}
            for one in found
        ]
        tables.print_object(rows if len(rows) > 1 else rows[0], how)
        return int(ExitCode.DONE)
    for one in found:
        result.print_record(one.record)
        _print_compared(one.record, records)
    return int(ExitCode.DONE)


def _print_compared(record: DrillRecord, records: list[DrillRecord]) -> None:
    measures = [measure for measure in compared(record, records) if measure.earlier]
    if not measures:
        return
    print("\nCompared with earlier drills of this fault, workload and profile:")
    rows = [
        {
            "what": measure.name,
            "this": _value(measure.value, measure),
            "median": _value(measure.median, measure),
            "spread": _value(measure.spread, measure),
            "drills": measure.earlier,
            "": "REGRESSION" if measure.regression else " ",
        }
        for measure in measures
    ]
    tables.print_table(rows, ("what", "this", "median", "spread", "drills", ""))


def _value(value: float | None, measure: Measure) -> str:
    return "" if value is None else in_seconds(value, 1) if measure.unit == "s" else f"{value:.0f}"


def _report(args: argparse.Namespace) -> int:
    history = DrillHistory()
    found: list[KeptDrill] = history.find(_named(args))
    how = form(args.output, args.out)
    text = written(drill_report(found, [one.record for one in history.all()[0]]), how)
    return save(text, how, args.out, args.name if len(found) > 1 else found[0].record.id)


def _named(args: argparse.Namespace) -> str:
    if not args.name:
        raise UsageError(
            f"Which drill to {args.what}?",
            todo="cockpit drill history lists them; last is the newest one that was not refused.",
        )
    return str(args.name)
