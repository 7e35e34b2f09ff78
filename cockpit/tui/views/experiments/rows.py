"""MLflow's runs as rows, one of them as a text, and two beside each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from cockpit import format
from cockpit.insight.metrics.tracked_runs import (
    compared,
    differing,
    metrics_line,
    parameters,
    parameters_line,
    took_s,
)
from cockpit.model.text import clean, one_line
from cockpit.model.tracking import ModelVersion, TrackedRun
from cockpit.store.store import Store
from cockpit.tui.rows.text import facts_text
from cockpit.tui.terminal.symbols import Symbols, symbols
from cockpit.tui.widgets.table.table import Cell, Column, Row

COLUMNS = (
    Column("marked", "", width=1),
    Column("name", "RUN", min_width=8, cut="middle"),
    Column("status", "STATUS", width=9),
    Column("time", "TIME", width=10, align="right", priority=1),
    Column("metrics", "METRICS", min_width=16, grow=2),
    Column("parameters", "PARAMETERS", min_width=12, grow=1, priority=2),
    Column("experiment", "EXPERIMENT", min_width=8, priority=3, cut="middle"),
)
_STYLES = {"RUNNING": "good", "FAILED": "bad", "KILLED": "warning"}
NAME_CELLS = 30
TEXT_CELLS = 120


def newest_first(store: Store) -> list[TrackedRun]:
    return sorted(store.tracked.values(), key=lambda run: run.started_s or 0.0, reverse=True)


def rows(runs: Sequence[TrackedRun], marked: str, now_s: float) -> list[Row]:
    """A row each, with the parameters that differ. `marked`: the id of the run to compare with."""
    differ = differing(runs)
    mark = "*" if symbols() is Symbols.ASCII else "●"
    return [
        Row(
            run.id,
            (
                Cell(mark if run.id == marked else "", "bold accent"),
                Cell(one_line(run.name or run.id, NAME_CELLS), "bold"),
                Cell(one_line(run.status, 9), _STYLES.get(run.status, "")),
                Cell(format.duration(took_s(run, now_s))),
                Cell(one_line(metrics_line(run), TEXT_CELLS) or format.DASH),
                Cell(one_line(parameters_line(run, differ), TEXT_CELLS), "muted"),
                Cell(one_line(run.experiment, NAME_CELLS), "muted"),
            ),
        )
        for run in runs
    ]


def details(run: TrackedRun, now_s: float) -> Content:
    """All that MLflow reported about a run."""
    parts = [
        ("experiment", run.experiment),
        ("status", f"{run.status}, {format.duration(took_s(run, now_s))}"),
        ("id", run.id),
        ("Ray Train run", run.run_id or format.DASH),
        ("page", run.url),
        ("Metrics", ""),
        *((name, format.number(value, 6)) for name, value in sorted(run.metrics.items())),
        ("Parameters", ""),
        *sorted(parameters(run).items()),
        ("Models", ""),
        *((f"{each.name} {each.version}", _model(each)) for each in run.models),
        ("Artifacts", ""),
        *((name, " ") for name in run.artifacts),
    ]
    return facts_text([(one_line(name), one_line(text, 400)) for name, text in parts])


def _model(version: ModelVersion) -> str:
    return "  ".join([", ".join(version.aliases), version.url]).strip() or " "


def beside(first: TrackedRun, second: TrackedRun) -> Content:
    """Two runs: the parameters and metrics that differ."""
    found = compared(first, second)
    names = [one_line(run.name or run.id, NAME_CELLS) for run in (first, second)]
    if names[0] == names[1]:
        names = [f"{name} {run.id[:8]}" for name, run in zip(names, (first, second), strict=True)]
    lines: list[Content] = []
    for title, all_rows in (("Metrics", found.metrics), ("Parameters", found.parameters)):
        differ = [row for row in all_rows if row.differs]
        heading = f"{title}: {len(differ)} of {len(all_rows)} differ"
        lines.append(Content.styled(heading, "bold"))
        table: list[tuple[str, ...]] = [("", *names, "difference" if title == "Metrics" else "")]
        table += [
            (row.name, row.first or format.DASH, row.second or format.DASH, row.difference)
            for row in differ
        ]
        widths = [max(len(clean(line[i])) for line in table) for i in range(4)]
        for number, line in enumerate(table if differ else ()):
            cells = [one_line(text).ljust(width) for text, width in zip(line, widths, strict=True)]
            lines.append(Content.styled("  ".join(cells).rstrip(), "" if number else "$muted"))
        lines.append(Content(""))
    return Content("\n").join(lines[:-1])
