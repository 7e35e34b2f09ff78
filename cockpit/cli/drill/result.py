"""Print the result of a drill: a table by phase, or one JSON object."""

from __future__ import annotations

from typing import Any

from cockpit.cli.drill import progress
from cockpit.cli.drill.progress import probe_line
from cockpit.cli.output import tables
from cockpit.drills.gamedays.gameday import GameDayResult
from cockpit.format import in_seconds, moment, plural
from cockpit.model.drill import DrillRecord, Recovery, Verdict
from cockpit.model.text import one_line


def show(record: DrillRecord, how: str) -> None:
    if how == "table":
        print_record(record)
    else:
        tables.print_object(as_row(record), how)


def show_day(result: GameDayResult, how: str) -> None:
    if how == "table":
        print_day(result)
    else:
        tables.print_object(day_as_row(result), how)


def day_as_row(result: GameDayResult) -> dict[str, Any]:
    """A game day: its steps, and the records of those that were drills."""
    whole: dict[str, Any] = tables.as_json(result)
    for row, step in zip(whole["steps"], result.steps, strict=True):
        row["record"] = None if step.record is None else as_row(step.record)
    return whole


def print_day(result: GameDayResult) -> None:
    for step in result.steps:
        if step.record is not None:
            print_record(step.record)
            print()
    rows = [
        {
            "step": step.number,
            "what": step.name,
            "result": {True: "passed", False: "FAILED", None: "left out"}[step.ok],
            "took": in_seconds(step.ended_s - step.began_s, 0),
            "why": one_line(step.why, 100),
        }
        for step in result.steps
    ]
    tables.print_table(rows, ("step", "what", "result", "took", "why"))
    verdict = "PASSED" if result.passed else "FAILED"
    print(f"\nGame day {result.name} {verdict} ({result.id}): {one_line(result.why)}")


def as_row(record: DrillRecord) -> dict[str, Any]:
    """The keys are stable for scripts; of a recovery they are `cockpit kill`'s."""
    whole: dict[str, Any] = tables.as_json(record)
    del whole["recoveries"]
    whole["drills"] = [
        {**drill, **progress.as_row(measured)}
        for drill, measured in zip(whole["drills"], record.recoveries, strict=False)
    ]
    whole["stages"] = [{"stage": stage, "at_s": at_s} for stage, at_s in whole["stages"]]
    return whole | {"fault": record.fault}


def print_record(record: DrillRecord) -> None:
    began = moment(record.began_s)
    print(one_line(f"{record.id}  {record.fault} on {record.cluster}, {began}"))
    for measured in record.recoveries:
        print()
        _print_recovery(measured)
    if record.probes:
        print()
        for result in record.probes:
            print(one_line(probe_line(result)))
    for note in record.notes:
        print(one_line(f"Note: {note}"))
    nothing = ", nothing was done" if record.verdict is Verdict.REFUSED else ""
    print(f"\n{record.verdict.value.upper()}{nothing}: {one_line(record.why)}")


def _print_recovery(measured: Recovery) -> None:
    drill = measured.drill
    ranks = f", rank {', '.join(map(str, drill.ranks))}" if drill.ranks else ""
    last = drill.step if measured.last_step is None else measured.last_step
    step = f", after step {last:,}" if drill.run_id else ""
    print(one_line(f"{drill.fault} of {drill.target or 'the cluster'}{ranks}{step}"))
    before_s = 0.0
    rows = []
    for instant in measured.instants:
        rows.append(
            {
                "phase": instant.milestone.value,
                "after": in_seconds(instant.after_s, 1),
                "took": in_seconds(instant.after_s - before_s, 1),
                "source": instant.source,
            }
        )
        before_s = instant.after_s
    if rows:
        tables.print_table(rows, ("phase", "after", "took", "source"))
    if costs := _costs(measured):
        print(one_line(f"Cost: {costs}.", 400))
    for line in measured.missing_data:
        print(one_line(f"Missing data: {line}"))


def _costs(measured: Recovery) -> str:
    """Steps, seconds and other losses; unknown ones are left out."""
    parts = []
    if (steps := measured.steps_lost) is not None:
        again = f", repeated from step {measured.resumed_step:,}" if steps else ""
        parts.append(f"{plural(steps, 'step')} lost{again}")
    if measured.seconds_lost is not None:
        parts.append(f"{in_seconds(measured.seconds_lost, 1)} lost")
    if measured.gpu_seconds_lost is not None:
        parts.append(f"{measured.gpu_seconds_lost:.1f} GPU-seconds lost")
    if measured.goodput_percent is not None:
        window_s = max(instant.after_s for instant in measured.instants)
        parts.append(f"goodput {measured.goodput_percent:.0f} % of these {in_seconds(window_s, 0)}")
    if (loss := measured.continuity) is not None:
        how = "continuous" if loss.continuous else "NOT continuous"
        parts.append(f"loss {how}, {loss.before:.4g} before and {loss.after:.4g} after")
    if measured.restarts:
        budget = f", counted against {measured.budget}" if measured.budget else ""
        parts.append(f"{measured.restarts} restart{'s'[: measured.restarts != 1]}{budget}")
    return "; ".join(parts)
