"""The report of one drill, or of all drills of a game day.

A timeline and a table by phase with the source of each milestone, the loss and the throughput
around the fault, the hypothesis, the cost, and a comparison with earlier drills of its kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cockpit.format import in_seconds
from cockpit.insight.recovery.drill_comparison import compared, kind_of
from cockpit.model.drill import DrillRecord, KeptDrill, Milestone, Recovery, Verdict
from cockpit.model.text import as_sentence
from cockpit.report import values as format
from cockpit.report.document import (
    Block,
    Chart,
    Column,
    Columns,
    Document,
    Fact,
    Facts,
    Kind,
    Line,
    Mark,
    MarkKind,
    Section,
    Span,
    Table,
    Text,
    Timeline,
    Tone,
    table,
)

TONES = {Verdict.PASSED: Tone.GOOD, Verdict.FAILED: Tone.BAD, Verdict.BROKEN: Tone.BAD}
CURVES = {
    "loss": ("Loss", Kind.NUMBER),
    "samples_per_s": ("Throughput, samples of all ranks", Kind.RATE),
}
HOLDS = {True: "holds", False: "does not hold", None: "unknown"}


def drill_report(kept: Sequence[KeptDrill], earlier: Sequence[DrillRecord]) -> Document:
    """Report the drills in `kept`, in their order, at least one. `earlier`: all stored drills."""
    one = len(kept) == 1
    begin_s, text = _origin(kept)
    sections: list[Section] = []
    if not one:
        sections.append(_summary(kept))
    for number, each in enumerate(kept, start=1):
        suffix = "" if one else f"-{number}"
        before = "" if one else f"{number}. {each.record.name}: "
        for section in _sections(each, earlier):
            title = section.title if one else before + section.title.lower()
            sections.append(Section(section.name + suffix, title, section.blocks))
    first = kept[0].record
    day = first.game_day.rpartition("/")[0]
    return Document(
        title=f"Drill {format.text(first.name, 120)}" if one else f"Game day {day}",
        verdict=_verdict(kept),
        tone=_tone(kept),
        begin_s=begin_s,
        facts=_head(kept),
        sections=tuple(section for section in sections if section.blocks),
        marks=tuple(
            Mark(MarkKind.DRILL, drill.injected_s, f"{drill.fault} of {drill.target}")
            for each in kept
            for drill in each.record.drills
        ),
        begin=text,
    )


def _origin(kept: Sequence[KeptDrill]) -> tuple[float, str]:
    """The zero of the time axis, and its name."""
    record = kept[0].record
    curves = [curve.times[0] for each in kept for curve in each.curves if curve.times]
    begin_s = min([record.began_s, *curves])
    if not record.drills:
        return begin_s, "the start of the drill"
    return begin_s, f"{in_seconds(record.drills[0].injected_s - begin_s, 0)} before the fault"


def _verdict(kept: Sequence[KeptDrill]) -> str:
    if len(kept) == 1:
        record = kept[0].record
        return f"{record.verdict.value.capitalize()}: {record.why}"
    passed = sum(each.record.verdict is Verdict.PASSED for each in kept)
    return f"{passed} of {len(kept)} drills passed."


def _tone(kept: Sequence[KeptDrill]) -> Tone:
    tones = {TONES.get(each.record.verdict, Tone.MIXED) for each in kept}
    return next(tone for tone in (Tone.BAD, Tone.MIXED, Tone.GOOD) if tone in tones)


def _head(kept: Sequence[KeptDrill]) -> Facts:
    record, kind = kept[0].record, kind_of(kept[0].record)
    seeds = {drill.seed for each in kept for drill in each.record.drills}
    facts = [
        Fact("drill", record.id if len(kept) == 1 else ""),
        Fact("fault", record.fault if len(kept) == 1 else ""),
        Fact("game_day", record.game_day),
        Fact("cluster", record.cluster),
        Fact("run", kept[0].run),
        Fact("workload", kind.workload),
        Fact("profile", kind.profile, title="recovery profile"),
        Fact("seed", seeds.pop() if len(seeds) == 1 else None, Kind.COUNT),
        Fact("began", format.date(record.began_s), Kind.LABEL),
        Fact("ended", format.date(kept[-1].record.ended_s), Kind.LABEL),
    ]
    return Facts(tuple(fact for fact in facts if fact.value not in ("", None)))


def _summary(kept: Sequence[KeptDrill]) -> Section:
    def worst(record: DrillRecord) -> Recovery | None:
        return max(record.recoveries, key=lambda m: m.first_step_s or 0.0, default=None)

    columns: Columns[tuple[int, DrillRecord, Recovery | None]] = (
        (Column("number", Kind.COUNT), lambda row: row[0]),
        (Column("drill", Kind.TEXT), lambda row: row[1].name),
        (Column("fault", Kind.LABEL), lambda row: row[1].fault),
        (Column("verdict", Kind.LABEL), lambda row: row[1].verdict.value),
        (
            Column("first_step_s", Kind.SECONDS, "first new step"),
            lambda row: row[2].first_step_s if row[2] else None,
        ),
        (
            Column("steps_lost", Kind.COUNT, "steps lost"),
            lambda row: row[2].steps_lost if row[2] else None,
        ),
        (Column("why", Kind.TEXT), lambda row: row[1].why),
    )
    rows = [(number, of.record, worst(of.record)) for number, of in enumerate(kept, start=1)]
    return Section("drills", "Drills", (table("drills", columns, rows),))


def _sections(kept: KeptDrill, earlier: Sequence[DrillRecord]) -> Iterator[Section]:
    record = kept.record
    costs = tuple(_numbers(measured) for measured in record.recoveries)
    yield Section("numbers", "Key numbers", tuple(facts for facts in costs if facts.facts))
    yield Section("phases", "Recovery by phase", tuple(_phases(record)))
    yield Section("curves", "Curves around the fault", tuple(_charts(kept)))
    yield Section("hypothesis", "Hypothesis", _hypothesis(record))
    yield Section("compared", "Comparison with earlier drills", _compared(record, earlier))
    yield Section("drill", "Stages of the drill", tuple(_went_on(record)))


def _numbers(measured: Recovery) -> Facts:
    continuity = measured.continuity
    loss = "" if continuity is None else "continuous" if continuity.continuous else "NOT continuous"
    facts = [
        Fact("detected_s", measured.detected_s, Kind.SECONDS, "detected by Ray"),
        Fact("first_step_s", measured.first_step_s, Kind.SECONDS, "first new step"),
        Fact(
            "throughput_back_s",
            measured.reached(Milestone.THROUGHPUT_BACK),
            Kind.SECONDS,
            "throughput back",
        ),
        Fact("steps_lost", measured.steps_lost, Kind.COUNT, "steps lost"),
        Fact("seconds_lost", measured.seconds_lost, Kind.SECONDS, "time lost"),
        Fact("gpu_seconds_lost", measured.gpu_seconds_lost, Kind.SECONDS, "GPU time lost"),
        Fact("goodput_percent", measured.goodput_percent, Kind.PERCENT, "goodput"),
        Fact(
            "loss",
            loss,
            Kind.LABEL,
            "loss",
            ""
            if continuity is None
            else f"{format.number(continuity.before)} before, {format.number(continuity.after)}"
            " after",
        ),
        Fact("restarts", measured.restarts or None, Kind.COUNT, "restarts", measured.budget),
    ]
    return Facts(tuple(fact for fact in facts if fact.value not in (None, "")), large=True)


def _phases(record: DrillRecord) -> Iterator[Block]:
    """A bar a drill, each piece named by the milestone that ended it; then the table."""
    spans, rows, order = [], [], []
    for number, measured in enumerate(record.recoveries, start=1):
        drill, before_s = measured.drill, 0.0
        lane = drill.fault if len(record.recoveries) == 1 else f"{number}. {drill.fault}"
        for instant in measured.instants:
            name = instant.milestone.value
            took_s = instant.after_s - before_s
            rows.append((lane, name, instant.after_s, took_s, instant.source))
            if took_s > 0:
                begin_s = drill.injected_s + before_s
                spans.append(Span(lane, name, begin_s, drill.injected_s + instant.after_s))
                order.append(name)
            before_s = max(before_s, instant.after_s)
        for line in measured.missing_data:
            yield Text(f"Missing data: {line}.")
    if spans:
        begin_s, end_s = min(s.begin_s for s in spans), max(s.end_s for s in spans)
        names = tuple(dict.fromkeys(order))
        yield Timeline("phases", begin_s, end_s, tuple(spans), names, lane="fault")
    if rows:
        columns = (
            Column("fault", Kind.LABEL),
            Column("phase", Kind.LABEL, "until"),
            Column("after_s", Kind.SECONDS, "after the fault"),
            Column("took_s", Kind.SECONDS, "took"),
            Column("source", Kind.TEXT, "source"),
        )
        yield Table("phases", columns, tuple(rows))


def _charts(kept: KeptDrill) -> Iterator[Chart]:
    times = [at_s for curve in kept.curves for at_s in (curve.times[:1] + curve.times[-1:])]
    ended = [
        measured.drill.injected_s + measured.attempt_ended_s
        for measured in kept.record.recoveries
        if measured.attempt_ended_s is not None
    ]
    for curve in kept.curves:
        title, kind = CURVES.get(curve.name, (curve.name, Kind.NUMBER))
        line = Line(title.lower(), curve.times, curve.values)
        end_s = max(*times, kept.record.ended_s)
        yield Chart(curve.name, title, kind, min(times), end_s, (line,), None, tuple(ended))


def _hypothesis(record: DrillRecord) -> tuple[Block, ...]:
    if not record.probes:
        return ()
    columns = (
        Column("probe", Kind.TEXT),
        Column("when", Kind.LABEL),
        Column("result", Kind.LABEL),
        Column("found", Kind.TEXT),
        Column("at", Kind.MOMENT),
    )
    rows = tuple((p.probe, p.when, HOLDS[p.ok], p.value, p.at_s) for p in record.probes)
    return (Table("probes", columns, rows),)


def _compared(record: DrillRecord, earlier: Sequence[DrillRecord]) -> tuple[Block, ...]:
    measures = compared(record, earlier)
    if not any(measure.earlier for measure in measures):
        return ()
    rows = tuple(
        (
            measure.name,
            measure.value,
            measure.median,
            measure.spread,
            measure.earlier,
            "worse than usual" if measure.regression else "",
        )
        for measure in measures
        if measure.earlier
    )
    columns = (
        Column("what", Kind.LABEL),
        Column("value", Kind.NUMBER, "this drill"),
        Column("median", Kind.NUMBER, "median"),
        Column("spread", Kind.NUMBER, "spread"),
        Column("earlier", Kind.COUNT, "drills"),
        Column("verdict", Kind.LABEL, ""),
    )
    kinds = tuple(Kind.SECONDS if m.unit == "s" else Kind.NUMBER for m in measures if m.earlier)
    note = "Of the same fault, workload and recovery profile. Spread: the scaled MAD."
    return (Table("compared", columns, rows, note=note, row_kinds=kinds),)


def _went_on(record: DrillRecord) -> Iterator[Block]:
    for drill in record.drills:
        values = ", ".join(f"{name} {value}" for name, value in drill.parameters.items())
        ranks = f", rank {', '.join(map(str, drill.ranks))}" if drill.ranks else ""
        text = f"{drill.fault} of {drill.target or 'the cluster'}{ranks}"
        yield Text(f"{text}{f' ({values})' if values else ''}.")
    rows = tuple((at_s, stage.value) for stage, at_s in record.stages)
    yield Table("stages", (Column("at", Kind.MOMENT), Column("stage", Kind.LABEL)), rows)
    for note in record.notes:
        yield Text(as_sentence(note.rstrip(".")))
