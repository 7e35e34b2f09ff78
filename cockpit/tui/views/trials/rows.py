"""Trials of Ray Tune as rows: parameters, progress, and the best one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from cockpit import format
from cockpit.model.run import Trial, TrialStatus
from cockpit.model.text import one_line
from cockpit.store.store import Experiment, Store
from cockpit.store.trials import best, in_order, varied
from cockpit.tui.rows.fields import Field, chosen, lazy_rows
from cockpit.tui.rows.filter import Value
from cockpit.tui.rows.sort import Order
from cockpit.tui.terminal.symbols import Symbols, symbols
from cockpit.tui.widgets.chart.sparkline import sparkline
from cockpit.tui.widgets.table.table import Cell, Column, LazyRows

SPARK_CELLS = 10
CONFIG_COLUMNS = 12
METRIC_COLUMNS = 8
TEXT_CELLS = 120
SETTING_CELLS = 8
"""A number that is longer is shown with four significant digits."""
_STYLES = {
    TrialStatus.PENDING: "muted",
    TrialStatus.RUNNING: "good",
    TrialStatus.PAUSED: "warning",
    TrialStatus.TERMINATED: "",
    TrialStatus.ERROR: "bad",
}
MARKS = ("best", "failed")
"""Keywords of the filter for trials."""
_INTERNAL = frozenset({"time_this_iter_s", "timestamp", "pid", "done", "iterations_since_restore"})
"""Bookkeeping of Tune's own that no one compares trials by."""


class TrialLine(Struct, frozen=True):
    """A trial with what is known of it from elsewhere."""

    trial: Trial
    metric: str
    is_best: bool
    now_s: float
    curve: tuple[float, ...] = ()
    """The metric, over its results."""

    @property
    def key(self) -> str:
        return f"{self.trial.experiment}/{self.trial.id}"

    @property
    def style(self) -> str:
        return "muted" if self.trial.status is TrialStatus.PENDING else ""

    @property
    def took_s(self) -> float | None:
        """Since its start; for a completed trial, until its last update."""
        trial = self.trial
        if trial.started_s is None:
            return None
        end_s = trial.updated_s if trial.status.is_over else self.now_s
        return max(0.0, (end_s or self.now_s) - trial.started_s)


_Field: TypeAlias = Field[TrialLine]


def counts(trials: Sequence[Trial]) -> list[tuple[TrialStatus, int]]:
    """How many trials are in each status that some are in; errors first, as a line may be cut."""
    statuses = sorted(TrialStatus, key=lambda status: status is not TrialStatus.ERROR)
    found = ((status, sum(t.status is status for t in trials)) for status in statuses)
    return [(status, number) for status, number in found if number]


class TrialRows:
    """All experiments in one table; the newest results first sorted by what is optimised."""

    def __init__(self) -> None:
        self._fields: tuple[_Field, ...] = _fields((), [], [], "")
        self.lines: list[TrialLine] = []
        self.problem = ""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the rows given last."""
        return tuple(field.column for field in self._fields)

    def rows(self, store: Store, now_s: float, order: Order) -> LazyRows:
        """In the chosen order; by default the best first, then those without a result."""
        experiments = [e for e in store.experiments.values() if e.trials]
        trials = [trial for e in experiments for trial in e.trials.values()]
        metrics = {e.metric for e in experiments if e.metric}
        metric = next(iter(metrics)) if len(metrics) == 1 else ""
        reported = sorted({name for t in trials for name in t.metrics} - _INTERNAL - {metric})
        self._fields = _fields(
            tuple(e.name for e in experiments), varied(trials), reported[:METRIC_COLUMNS], metric
        )
        self.lines = [
            line for experiment in experiments for line in _lines(store, experiment, now_s)
        ]
        shown, self.problem = chosen(
            self.lines, self._fields, order, text=_text, marks=MARKS, is_marked=_is_marked
        )
        return lazy_rows(shown, self._fields, lambda line: line.key)


def _lines(store: Store, experiment: Experiment, now_s: float) -> list[TrialLine]:
    top = best(experiment)
    return [
        TrialLine(
            trial,
            experiment.metric,
            top is not None and trial.id == top.id,
            now_s,
            _curve(store, experiment, trial),
        )
        for trial in in_order(experiment)
    ]


def _curve(store: Store, experiment: Experiment, trial: Trial) -> tuple[float, ...]:
    series = experiment.curves.get(trial.id)
    if series is not None and len(series):
        return tuple(series.values[-SPARK_CELLS:])
    run = store.runs.get(trial.run_id) if trial.run_id else None
    if run is not None and experiment.metric in run.reported:
        return tuple(run.reported[experiment.metric].values[-SPARK_CELLS:])
    return ()


def _is_marked(line: TrialLine, mark: str) -> bool:
    return line.is_best if mark == "best" else line.trial.status is TrialStatus.ERROR


def _text(line: TrialLine) -> str:
    trial = line.trial
    terms = (trial.id, trial.experiment, trial.status.value, trial.node_ip, trial.error)
    return "\n".join((*terms, *trial.config.values())).casefold()


def _fields(
    experiments: Sequence[str], config: Sequence[str], metrics: Sequence[str], metric: str
) -> tuple[_Field, ...]:
    mark = "*" if symbols() is Symbols.ASCII else "★"
    fields = [
        _Field(
            Column("best", "", width=1),
            lambda line: float(line.is_best),
            lambda line: Cell(mark if line.is_best else "", "bold accent"),
        ),
        _Field(
            Column("trial", "TRIAL", min_width=8, cut="middle"),
            lambda line: line.trial.id,
            lambda line: Cell(line.trial.id, "bold" if line.is_best else line.style),
        ),
    ]
    if len(experiments) > 1:
        fields.append(
            _Field(
                Column("experiment", "EXPERIMENT", min_width=8, priority=5, cut="middle"),
                lambda line: line.trial.experiment,
                lambda line: Cell(line.trial.experiment, "muted"),
            )
        )
    fields += [
        _Field(
            Column("status", "STATUS", width=10),
            lambda line: line.trial.status.value,
            lambda line: Cell(line.trial.status.value, _STYLES[line.trial.status]),
        ),
        _Field(
            Column("iteration", "ITER", width=5, align="right"),
            lambda line: float(line.trial.iteration),
            lambda line: Cell(format.count(line.trial.iteration), line.style),
            ("iter",),
        ),
    ]
    if metric:
        fields.append(_metric(metric, metric.upper(), 0))
        fields.append(
            _Field(
                Column("curve", "CURVE", width=SPARK_CELLS, priority=4),
                lambda line: line.curve[-1] if line.curve else None,
                lambda line: Cell(
                    sparkline(line.curve, SPARK_CELLS) if line.curve else "", "curve-1"
                ),
            )
        )
    fields += [_setting(name, number) for number, name in enumerate(config[:CONFIG_COLUMNS])]
    fields += [
        _Field(
            Column("time", "TIME", width=8, align="right", priority=1),
            lambda line: line.took_s,
            lambda line: Cell(format.duration(line.took_s), line.style),
        ),
        *(_metric(name, name.upper(), 7) for name in metrics),
        _Field(
            Column("node", "NODE", priority=6),
            lambda line: line.trial.node_ip,
            lambda line: Cell(line.trial.node_ip or format.DASH, "muted"),
        ),
        _Field(
            Column("error", "ERROR", min_width=10, grow=1, priority=2),
            lambda line: line.trial.error,
            lambda line: Cell(one_line(line.trial.error, TEXT_CELLS), "bad"),
        ),
    ]
    return tuple(fields)


def _metric(name: str, title: str, priority: int) -> _Field:
    def value(line: TrialLine) -> Value:
        return line.trial.metrics.get(name)

    def cell(line: TrialLine) -> Cell:
        text = format.reported(line.trial.metrics.get(name))
        bad = text in ("NaN", "∞", "-∞")
        return Cell(text, "bad" if bad else "bold" if line.is_best else line.style)

    width = max(9, min(14, len(title) + 1))
    column = Column(f"metric.{name}", title, width=width, align="right", priority=priority)
    return _Field(column, value, cell, (name.casefold(),))


def _setting(name: str, number: int) -> _Field:
    """One parameter of the trials' configuration; those named last are hidden first."""

    def value(line: TrialLine) -> Value:
        text = line.trial.config.get(name, "")
        try:
            return float(text)
        except ValueError:
            return text

    def cell(line: TrialLine) -> Cell:
        text, number = line.trial.config.get(name, format.DASH), value(line)
        if len(text) > SETTING_CELLS and isinstance(number, float):
            text = format.reported(number)
        return Cell(one_line(text, 40), line.style)

    column = Column(
        f"config.{name}",
        name.rpartition("/")[2].upper(),
        min_width=6,
        align="right",
        priority=2 + number if number else 0,
        cut="middle",
    )
    return _Field(
        column,
        value,
        cell,
        (name.casefold(), name.rpartition("/")[2].casefold()),
    )
