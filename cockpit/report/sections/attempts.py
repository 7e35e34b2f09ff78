"""The course of a run: its attempts and their phases, the checkpoints, and what the drills took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from cockpit.insight.causes.verdict import causes_of_run
from cockpit.insight.recovery.measurement import recovery
from cockpit.model.run import Checkpoint
from cockpit.report.document import (
    Block,
    Column,
    Fact,
    Facts,
    Kind,
    Section,
    Span,
    Table,
    Text,
    Timeline,
    Value,
)
from cockpit.report.sections.overview import steps_lost
from cockpit.report.time_range import attempt_bounds, extent, phase_spans
from cockpit.store.run import RunView
from cockpit.store.store import Store

ATTEMPTS_SHOWN = 60
LANES = 30
CHECKPOINTS_SHOWN = 20
DRILLS_SHOWN = 40


def attempts(store: Store, run: RunView) -> Section:
    lost = steps_lost(run)
    rows: list[tuple[Value, ...]] = []
    for number in sorted(run.attempts):
        attempt = run.attempts[number]
        started_s, ended_s = attempt_bounds(run, number)
        took = ended_s - started_s if started_s is not None and ended_s is not None else None
        reason = attempt.reason or ("" if ended_s is None else "finished")
        rows.append(
            (
                number,
                started_s,
                ended_s,
                took,
                len(attempt.placements) or None,
                attempt.first_step,
                attempt.last_step,
                lost.get(number),
                reason,
            )
        )
    shown, note = _newest(rows, ATTEMPTS_SHOWN, "attempts")
    table = Table(
        "attempts",
        (
            Column("attempt", Kind.COUNT),
            Column("started_s", Kind.MOMENT),
            Column("ended_s", Kind.MOMENT),
            Column("duration_s", Kind.SECONDS),
            Column("ranks", Kind.COUNT),
            Column("first_step", Kind.COUNT),
            Column("last_step", Kind.COUNT),
            Column("steps_lost", Kind.COUNT, "steps repeated"),
            Column("reason", Kind.TEXT, "why it ended"),
        ),
        shown,
        note=note,
    )
    blocks = (table, *_causes(store, run)) if rows else ()
    return Section("attempts", "Attempts", blocks)


def _causes(store: Store, run: RunView) -> tuple[Block, ...]:
    """The verdict on each attempt that ended badly."""
    rows = [
        (
            cause.attempt,
            cause.since_s,
            cause.category.value,
            cause.sentence,
            cause.quote,
            cause.confidence.value,
            f"{cause.advice.value}: {cause.advice_reason}",
        )
        for cause in causes_of_run(store, run)
    ]
    if not rows:
        return ()
    shown, note = _newest(rows, ATTEMPTS_SHOWN, "causes")
    columns = (
        Column("attempt", Kind.COUNT),
        Column("since_s", Kind.MOMENT, "since"),
        Column("category", Kind.LABEL),
        Column("cause", Kind.TEXT),
        Column("quote", Kind.TEXT, "reported"),
        Column("confidence", Kind.LABEL),
        Column("advice", Kind.TEXT),
    )
    return (Table("causes", columns, shown, note=note),)


def phases(run: RunView) -> Section:
    """The timeline by attempt, and how many seconds each phase took in all."""
    spans = phase_spans(run)
    if not spans:
        return Section("phases", "Phases", ())
    when = extent(run)
    seconds: defaultdict[str, float] = defaultdict(float)
    times: defaultdict[str, int] = defaultdict(int)
    for span in spans:
        seconds[span.name] += span.duration_s
        times[span.name] += 1
    order = ["running"] if "running" in seconds else []
    order += [name for name in seconds if name not in order]
    lanes = sorted({span.attempt for span in spans})
    kept = set(lanes[-LANES:])
    timeline = Timeline(
        "phases",
        when.begin_s,
        when.end_s,
        tuple(
            Span(f"attempt {span.attempt}", span.name, span.begin_s, span.end_s)
            for span in spans
            if span.attempt in kept
        ),
        tuple(order),
    )
    whole = sum(seconds.values()) or 1.0
    rows = tuple(
        (name, seconds[name], 100 * seconds[name] / whole, times[name])
        for name in sorted(seconds, key=lambda name: -seconds[name])
    )
    columns = (
        Column("phase", Kind.LABEL),
        Column("duration_s", Kind.SECONDS, "in all"),
        Column("share_percent", Kind.PERCENT, "share"),
        Column("times", Kind.COUNT),
    )
    blocks: list[Block] = [timeline, Table("phases", columns, rows)]
    if not run.phases:
        blocks.append(Text("The run reported no phases: these are the states of its controller."))
    if len(lanes) > LANES:
        blocks.append(Text(f"The timeline has the newest {LANES} of {len(lanes)} attempts."))
    return Section("phases", "Phases", tuple(blocks))


def checkpoints(run: RunView) -> Section:
    if not run.checkpoints:
        return Section("checkpoints", "Checkpoints", ())
    rows: list[tuple[Value, ...]] = []
    before_s: float | None = None
    for at_s, checkpoint in run.checkpoints:
        since_s = None if before_s is None else at_s - before_s
        rows.append(_checkpoint(at_s, checkpoint, since_s))
        before_s = at_s
    shown, note = _newest(rows, CHECKPOINTS_SHOWN, "checkpoints")
    facts = (
        Fact("checkpoints", len(run.checkpoints), Kind.COUNT),
        Fact("median_size_bytes", _median(rows, 2), Kind.BYTES, "size, median"),
        Fact("median_took_s", _median(rows, 3), Kind.SECONDS, "took, median"),
        Fact("median_interval_s", _median(rows, 4), Kind.SECONDS, "between two, median"),
    )
    columns = (
        Column("at_s", Kind.MOMENT, "accepted"),
        Column("step", Kind.COUNT),
        Column("size_bytes", Kind.BYTES, "size"),
        Column("took_s", Kind.SECONDS, "took"),
        Column("since_last_s", Kind.SECONDS, "since the one before"),
        Column("path", Kind.TEXT),
    )
    return Section(
        "checkpoints",
        "Checkpoints",
        (
            Facts(tuple(fact for fact in facts if fact.value is not None)),
            Table("accepted", columns, shown, note=note),
        ),
    )


def _median(rows: Sequence[tuple[Value, ...]], column: int) -> float | None:
    reported = [row[column] for row in rows]
    numbers = [float(value) for value in reported if isinstance(value, (int, float))]
    return median(numbers) if numbers else None


def _checkpoint(at_s: float, checkpoint: Checkpoint, since_s: float | None) -> tuple[Value, ...]:
    return (
        at_s,
        checkpoint.step,
        checkpoint.size_bytes,
        checkpoint.took_s,
        since_s,
        checkpoint.path,
    )


def drills(store: Store, run: RunView) -> Section:
    """Each fault that was injected, and the seconds until each step of the recovery."""
    ours = [drill for drill in store.drills if drill.run_id == run.id]
    rows: list[tuple[Value, ...]] = []
    for drill in ours:
        measured = recovery(store, drill)
        rows.append(
            (
                drill.injected_s,
                drill.fault,
                drill.target,
                ", ".join(map(str, drill.ranks[:8])) + (" …" if len(drill.ranks) > 8 else ""),
                measured.pod_gone_s,
                measured.detected_s,
                measured.attempt_ended_s,
                measured.pod_ready_s,
                measured.restarted_s,
                measured.first_step_s,
                measured.steps_lost,
                "recovered" if measured.recovered else "not recovered",
            )
        )
    shown, note = _newest(rows, DRILLS_SHOWN, "drills")
    table = Table(
        "drills",
        (
            Column("injected_s", Kind.MOMENT, "injected"),
            Column("fault", Kind.LABEL),
            Column("target", Kind.TEXT),
            Column("ranks", Kind.LABEL),
            Column("pod_gone_s", Kind.SECONDS, "pod deleted"),
            Column("detected_s", Kind.SECONDS, "detected"),
            Column("attempt_ended_s", Kind.SECONDS, "attempt ended"),
            Column("pod_ready_s", Kind.SECONDS, "pods ready"),
            Column("restarted_s", Kind.SECONDS, "restarted"),
            Column("first_step_s", Kind.SECONDS, "first step"),
            Column("steps_lost", Kind.COUNT, "steps lost"),
            Column("outcome", Kind.LABEL),
        ),
        shown,
        note=" ".join(part for part in ("Seconds count from the injection.", note) if part),
    )
    return Section("drills", "Drills", (table,) if rows else ())


def _newest(
    rows: Sequence[tuple[Value, ...]], limit: int, what: str
) -> tuple[tuple[tuple[Value, ...], ...], str]:
    """The first and the newest ones, and a note on those left out."""
    if len(rows) <= limit:
        return tuple(rows), ""
    left_out = len(rows) - limit
    note = f"{left_out:,} of {len(rows):,} {what} are left out, after the first."
    return (rows[0], *rows[len(rows) - limit + 1 :]), note
