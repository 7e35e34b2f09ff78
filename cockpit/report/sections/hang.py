"""The hang in which the newest attempt ended, or in which the run is now."""

from __future__ import annotations

from cockpit import format
from cockpit.insight.hang.advice import actions
from cockpit.insight.hang.before import changes
from cockpit.insight.hang.sentence import group_name
from cockpit.insight.hang.types import Confidence, Verdict
from cockpit.insight.hang.verdict import last_verdict, verdict
from cockpit.model.run import RunState
from cockpit.report.document import Block, Column, Fact, Facts, Kind, Section, Table, Value
from cockpit.store.run import RunView
from cockpit.store.store import Store

FRAMES = 6
"""Innermost frames of a stack that are shown."""


def hang(store: Store, run: RunView, now_s: float) -> Section:
    found = _late(run, now_s)
    return Section("hang", "Hang", () if found is None else _blocks(store, run, found))


def _late(run: RunView, now_s: float) -> Verdict | None:
    found = verdict(run, now_s)
    if found is None and run.state is not RunState.FINISHED and run.attempt is not None:
        found = last_verdict(run, run.attempt)
    if found is None or not found.is_late or found.confidence is Confidence.LOW:
        return None
    return found


def _blocks(store: Store, run: RunView, found: Verdict) -> tuple[Block, ...]:
    facts = (
        Fact("sentence", found.sentence, title="what"),
        Fact("kind", found.kind.value, Kind.LABEL),
        Fact("confidence", found.confidence.value, Kind.LABEL),
        Fact("idle_s", found.idle_s, Kind.SECONDS, "without progress"),
        Fact("bound_s", found.bound_s, Kind.SECONDS, "longest usual time"),
        Fact("todo", "; ".join(actions(found)), title="what to try"),
        Fact("evidence", "; ".join(found.evidence), title="evidence"),
        Fact("before", "; ".join(changes(store, run, found)), title="before the hang"),
    )
    blocks: list[Block] = [Facts(tuple(fact for fact in facts if fact.value != ""))]
    groups: list[tuple[Value, ...]] = [
        (group_name(of), seq, of.op if seq == of.seq else "", of.shape, format.ranks(ranks))
        for of in found.groups
        for seq, ranks in of.called.items()
    ]
    if groups:
        columns: tuple[Column, ...] = (
            Column("group", Kind.TEXT),
            Column("sequence", Kind.COUNT, "newest collective called"),
            Column("operation", Kind.LABEL),
            Column("shape", Kind.TEXT),
            Column("ranks", Kind.TEXT),
        )
        blocks.append(Table("process groups", columns, tuple(groups)))
    stacks: list[tuple[Value, ...]] = [
        (
            format.ranks(of.ranks),
            "cause" if of.is_cause else "waiting",
            of.place.value,
            " ← ".join(part for part in (of.stack.call, *of.stack.frames[:FRAMES]) if part),
        )
        for of in found.stacks
    ]
    if stacks:
        names = ("ranks", "role", "place", "stack")
        columns = tuple(Column(name, Kind.TEXT) for name in names)
        blocks.append(Table("stacks", columns, tuple(stacks)))
    return tuple(blocks)
