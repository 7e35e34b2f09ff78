"""The course of a run: its attempts and their phases, the checkpoints, and what the drills took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import TypeVar

from cockpit.insight.causes.types import Cause
from cockpit.insight.causes.verdict import causes_of_run
from cockpit.insight.metrics.save_interval import SaveInterval
from cockpit.insight.recovery.measurement import recovery
from cockpit.model.drill import Recovery
from cockpit.model.run import Checkpoint
from cockpit.report.document import (
    Block,
    Column,
    Columns,
    Fact,
    Facts,
    Kind,
    Section,
    Span,
    Table,
    Text,
    Timeline,
    table,
)
from cockpit.report.sections.overview import steps_lost
from cockpit.report.time_range import attempt_bounds, extent, phase_spans
from cockpit.store.run import AttemptView, RunView
from cockpit.store.store import Store

T = TypeVar("T")
ATTEMPTS_SHOWN = 60
LANES = 30
CHECKPOINTS_SHOWN = 20
DRILLS_SHOWN = 40


def attempts(store: Store, run: RunView) -> Section:
    lost = steps_lost(run)

    def took_s(attempt: AttemptView) -> float | None:
        started_s, ended_s = attempt_bounds(run, attempt.number)
        return ended_s - started_s if started_s is not None and ended_s is not None else None

    def reason(attempt: AttemptView) -> str:
        ended_s = attempt_bounds(run, attempt.number)[1]
        return attempt.reason or ("" if ended_s is None else "finished")

    columns: Columns[AttemptView] = (
        (Column("attempt", Kind.COUNT), lambda of: of.number),
        (Column("started_s", Kind.MOMENT), lambda of: attempt_bounds(run, of.number)[0]),
        (Column("ended_s", Kind.MOMENT), lambda of: attempt_bounds(run, of.number)[1]),
        (Column("duration_s", Kind.SECONDS), took_s),
        (Column("ranks", Kind.COUNT), lambda of: len(of.placements) or None),
        (Column("first_step", Kind.COUNT), lambda of: of.first_step),
        (Column("last_step", Kind.COUNT), lambda of: of.last_step),
        (Column("steps_lost", Kind.COUNT, "steps repeated"), lambda of: lost.get(of.number)),
        (Column("reason", Kind.TEXT, "why it ended"), reason),
    )
    found = [run.attempts[number] for number in sorted(run.attempts)]
    shown, note = _newest(found, ATTEMPTS_SHOWN, "attempts")
    blocks = (table("attempts", columns, shown, note=note), *_causes(store, run)) if found else ()
    return Section("attempts", "Attempts", blocks)


def _causes(store: Store, run: RunView) -> tuple[Block, ...]:
    """The verdict on each attempt that ended badly."""
    found = causes_of_run(store, run)
    if not found:
        return ()
    shown, note = _newest(found, ATTEMPTS_SHOWN, "causes")
    columns: Columns[Cause] = (
        (Column("attempt", Kind.COUNT), lambda cause: cause.attempt),
        (Column("since_s", Kind.MOMENT, "since"), lambda cause: cause.since_s),
        (Column("category", Kind.LABEL), lambda cause: cause.category.value),
        (Column("cause", Kind.TEXT), lambda cause: cause.sentence),
        (Column("quote", Kind.TEXT, "reported"), lambda cause: cause.quote),
        (Column("confidence", Kind.LABEL), lambda cause: cause.confidence.value),
        (
            Column("advice", Kind.TEXT),
            lambda cause: f"{cause.advice.value}: {cause.advice_reason}",
        ),
    )
    return (table("causes", columns, shown, note=note),)


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
        Column("duration_s", Kind.SECONDS, "total"),
        Column("share_percent", Kind.PERCENT, "share"),
        Column("times", Kind.COUNT),
    )
    blocks: list[Block] = [timeline, Table("phases", columns, rows)]
    if not run.phases:
        blocks.append(Text("The run reported no phases: these are the states of its controller."))
    if len(lanes) > LANES:
        blocks.append(Text(f"The timeline has the newest {LANES} of {len(lanes)} attempts."))
    return Section("phases", "Phases", tuple(blocks))


def checkpoints(run: RunView, interval: SaveInterval | None) -> Section:
    if not run.checkpoints:
        return Section("checkpoints", "Checkpoints", ())
    times = [at_s for at_s, _ in run.checkpoints]
    intervals = [None, *(after - before for before, after in pairwise(times))]
    rows = [
        (at_s, of, since_s) for (at_s, of), since_s in zip(run.checkpoints, intervals, strict=True)
    ]
    shown, note = _newest(rows, CHECKPOINTS_SHOWN, "checkpoints")
    sizes, seconds = ([of.size_bytes for _, of, _ in rows], [of.took_s for _, of, _ in rows])
    facts = (
        Fact("checkpoints", run.checkpoint_count, Kind.COUNT),
        Fact("median_size_bytes", _median(sizes), Kind.BYTES, "size, median"),
        Fact("median_took_s", _median(seconds), Kind.SECONDS, "took, median"),
        Fact("median_interval_s", _median(intervals), Kind.SECONDS, "between two, median"),
    )
    columns: Columns[tuple[float, Checkpoint, float | None]] = (
        (Column("at_s", Kind.MOMENT, "accepted"), lambda row: row[0]),
        (Column("step", Kind.COUNT), lambda row: row[1].step),
        (Column("size_bytes", Kind.BYTES, "size"), lambda row: row[1].size_bytes),
        (Column("took_s", Kind.SECONDS, "took"), lambda row: row[1].took_s),
        (Column("since_last_s", Kind.SECONDS, "since the one before"), lambda row: row[2]),
        (Column("path", Kind.TEXT), lambda row: row[1].path),
    )
    known = Facts(tuple(fact for fact in facts if fact.value is not None))
    advice = [Text(f"Saving {interval.text} ({interval.why}).")] if interval is not None else []
    accepted = table("accepted", columns, shown, note=note)
    blocks: tuple[Block, ...] = (known, *advice, accepted)
    return Section("checkpoints", "Checkpoints", blocks)


def _median(reported: Sequence[float | None]) -> float | None:
    numbers = [float(value) for value in reported if value is not None]
    return median(numbers) if numbers else None


def drills(store: Store, run: RunView) -> Section:
    """Each fault that was injected, and the seconds until each step of the recovery."""

    def ranks(of: Recovery) -> str:
        return ", ".join(map(str, of.drill.ranks[:8])) + " …" * (len(of.drill.ranks) > 8)

    columns: Columns[Recovery] = (
        (Column("injected_s", Kind.MOMENT, "injected"), lambda of: of.drill.injected_s),
        (Column("fault", Kind.LABEL), lambda of: of.drill.fault),
        (Column("target", Kind.TEXT), lambda of: of.drill.target),
        (Column("ranks", Kind.LABEL), ranks),
        (Column("pod_gone_s", Kind.SECONDS, "pod deleted"), lambda of: of.pod_gone_s),
        (Column("detected_s", Kind.SECONDS, "detected"), lambda of: of.detected_s),
        (Column("attempt_ended_s", Kind.SECONDS, "attempt ended"), lambda of: of.attempt_ended_s),
        (Column("pod_ready_s", Kind.SECONDS, "pods ready"), lambda of: of.pod_ready_s),
        (Column("restarted_s", Kind.SECONDS, "restarted"), lambda of: of.restarted_s),
        (Column("first_step_s", Kind.SECONDS, "first step"), lambda of: of.first_step_s),
        (Column("steps_lost", Kind.COUNT, "steps lost"), lambda of: of.steps_lost),
        (
            Column("outcome", Kind.LABEL),
            lambda of: "recovered" if of.recovered else "not recovered",
        ),
    )
    found = [recovery(store, drill) for drill in store.drills if drill.run_id == run.id]
    shown, note = _newest(found, DRILLS_SHOWN, "drills")
    note = f"Seconds count from the injection. {note}".rstrip()
    blocks = (table("drills", columns, shown, note=note),) if found else ()
    return Section("drills", "Drills", blocks)


def _newest(items: Sequence[T], limit: int, what: str) -> tuple[Sequence[T], str]:
    """The first and the newest ones, and a note on those left out."""
    if len(items) <= limit:
        return items, ""
    left_out = len(items) - limit
    note = (
        f"{left_out:,} of {len(items):,} {what} are omitted: the first and the newest "
        f"{limit - 1} are shown."
    )
    return (items[0], *items[len(items) - limit + 1 :]), note
