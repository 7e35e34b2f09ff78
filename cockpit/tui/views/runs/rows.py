"""Recorded and live runs as rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from cockpit import format
from cockpit.insight.metrics.summary import summary
from cockpit.model.run import RunState, RunSummary
from cockpit.model.text import one_line
from cockpit.recorder.reading.library import Recorded
from cockpit.store.store import Store
from cockpit.tui.rows.fields import Field
from cockpit.tui.terminal.symbols import Symbols, symbols
from cockpit.tui.widgets.table.table import Cell, Column

MARKS = ("live", "recorded")
"""Keywords of the filter for runs."""
TEXT_CELLS = 160
_STYLES = {
    RunState.RUNNING: "good",
    RunState.FINISHED: "",
    RunState.ERRORED: "bad",
    RunState.ABORTED: "bad",
    RunState.UNKNOWN: "muted",
}


class RunLine(Struct, frozen=True):
    """A run with its recording, if it has one."""

    summary: RunSummary
    now_s: float
    recorded: Recorded | None = None
    is_live: bool = False
    is_marked: bool = False

    @property
    def key(self) -> str:
        """The path of the recording, else the id of the run."""
        return str(self.recorded.path) if self.recorded else self.summary.run_id

    @property
    def tags(self) -> str:
        return " ".join(self.recorded.annotation.tags) if self.recorded else ""

    @property
    def note(self) -> str:
        return self.recorded.note if self.recorded else "not recorded"

    @property
    def took_s(self) -> float | None:
        """Of a run whose end is not known, the time that is recorded."""
        run, found = self.summary, self.recorded
        if run.ended_s is None and found is not None and not self.is_live:
            return found.end_s - found.begin_s
        if run.started_s is None:
            return None
        return max(0.0, (self.now_s if run.ended_s is None else run.ended_s) - run.started_s)


def run_lines(
    store: Store, recorded: Sequence[Recorded], now_s: float, marked: str = ""
) -> list[RunLine]:
    """The live runs first, then the recordings, the newest first. `marked`: the key of a line."""
    files = {one.summary.run_id: one for one in recorded if one.summary.run_id}
    lines = [
        RunLine(summary(store, run), now_s, found, not run.state.is_over)
        for run in reversed(store.runs.values())
        if (found := files.get(run.id)) is None or found.recording
    ]
    here = {line.summary.run_id for line in lines}
    lines += [
        RunLine(one.summary, now_s, one, one.recording and not one.summary.state.is_over)
        for one in recorded
        if not one.summary.run_id or one.summary.run_id not in here
    ]
    lines = [
        RunLine(line.summary, now_s, line.recorded, line.is_live, line.key == marked)
        for line in lines
    ]
    return sorted(lines, key=lambda line: not line.is_live)


def text_of(line: RunLine) -> str:
    """What a filter without a column searches, casefolded."""
    run = line.summary
    name = line.recorded.name if line.recorded else ""
    terms = (run.name, run.run_id, run.submission_id, run.job, run.cluster, run.state.value, name)
    return "\n".join((*terms, line.tags, line.note)).casefold()


def is_marked(line: RunLine, mark: str) -> bool:
    return line.is_live if mark == "live" else line.recorded is not None


_Field: TypeAlias = Field[RunLine]


def fields() -> tuple[_Field, ...]:
    mark = "*" if symbols() is Symbols.ASCII else "●"
    return (
        _Field(
            Column("marked", "", width=1),
            lambda line: float(line.is_marked),
            lambda line: Cell(mark if line.is_marked else "", "bold accent"),
        ),
        _Field(
            Column("run", "RUN", min_width=14, cut="middle"),
            lambda line: line.summary.name or line.summary.run_id,
            lambda line: Cell(
                one_line(line.summary.name or line.summary.run_id, TEXT_CELLS),
                "bold" if line.is_live else "",
            ),
            ("name",),
        ),
        _Field(
            Column("state", "STATE", width=10),
            lambda line: line.summary.state.value,
            lambda line: Cell(line.summary.state.value, _STYLES.get(line.summary.state, "warning")),
        ),
        _text("cluster", "CLUSTER", 12, 3, lambda line: line.summary.cluster),
        _text("job", "JOB", 8, 6, lambda line: line.summary.job),
        _number("ranks", "RANKS", 5, 4, lambda line: line.summary.world_size, _count),
        _Field(
            Column("started", "AGE", width=5, align="right", priority=1),
            lambda line: line.summary.started_s,
            lambda line: Cell(format.age(_since(line.summary.started_s, line.now_s)), "muted"),
        ),
        _number("time", "TIME", 10, 1, lambda line: line.took_s, format.duration),
        _number("attempts", "ATT", 3, 5, lambda line: line.summary.attempts, _count),
        _number("steps", "STEPS", 7, 2, lambda line: line.summary.steps, _count),
        _number("loss", "LOSS", 8, 0, lambda line: line.summary.loss, format.number),
        _number("rate", "SAMPLES/S", 9, 2, lambda line: line.summary.samples_per_s, format.si),
        _number(
            "step_time", "STEP TIME", 9, 5, lambda line: line.summary.step_time_s, format.duration
        ),
        _number(
            "goodput", "GOODPUT", 7, 4, lambda line: line.summary.goodput_percent, format.percent
        ),
        _Field(
            Column("tags", "TAGS", min_width=6, cut="end"),
            lambda line: line.tags,
            lambda line: Cell(one_line(line.tags, TEXT_CELLS), "accent"),
            ("tag",),
        ),
        _Field(
            Column("note", "NOTE", min_width=8, grow=1, priority=3),
            lambda line: line.note,
            lambda line: Cell(one_line(line.note, TEXT_CELLS), "muted"),
        ),
    )


def details(line: RunLine) -> list[tuple[str, str]]:
    """What is known of a run, as (name, text)."""
    run, found = line.summary, line.recorded
    facts = [
        ("run", f"{run.name}  {run.run_id}"),
        ("state", run.state.value),
        ("cluster", run.cluster),
        ("job", run.job),
        ("submission", run.submission_id),
        ("started", format.moment(run.started_s) if run.started_s else ""),
        ("time", format.duration(line.took_s)),
        ("ranks, GPUs", f"{_count(run.world_size)}, {run.gpus:g}"),
        ("attempts", _count(run.attempts)),
        ("steps", _count(run.steps)),
        ("loss", format.number(run.loss, 6)),
        ("throughput", format.rate(run.samples_per_s, " samples/s")),
        ("step time", format.duration(run.step_time_s)),
        ("goodput", format.percent(run.goodput_percent)),
        ("tags", line.tags),
        ("note", line.note),
    ]
    if found is not None:
        facts += [
            ("recording", f"{found.path}  {format.bytes_text(found.size_bytes)}"),
            ("replay", f"cockpit replay {found.name}"),
            ("report", f"cockpit report {found.name}"),
        ]
    return [(name, one_line(text, 400)) for name, text in facts if text]


def _text(
    key: str, title: str, width: int, priority: int, value: Callable[[RunLine], str]
) -> _Field:
    return _Field(
        Column(key, title, min_width=width, priority=priority, cut="middle"),
        value,
        lambda line: Cell(one_line(value(line), TEXT_CELLS) or format.DASH, "muted"),
    )


def _number(
    key: str,
    title: str,
    width: int,
    priority: int,
    value: Callable[[RunLine], float | None],
    text: Callable[[float | None], str],
) -> _Field:
    def as_float(line: RunLine) -> float | None:
        found = value(line)
        return None if found is None else float(found)

    return _Field(
        Column(key, title, width=width, align="right", priority=priority),
        as_float,
        lambda line: Cell(text(value(line))),
    )


def _count(value: float | None) -> str:
    return format.count(None if value is None else int(value))


def _since(at_s: float | None, now_s: float) -> float | None:
    return None if at_s is None else now_s - at_s
