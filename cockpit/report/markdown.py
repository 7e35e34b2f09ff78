"""A document as GitHub Markdown, with charts as text bars, to paste into an issue.

Pictures would be lost where the text is pasted. Text from other systems is put in code spans, so
that no part of it is parsed as Markdown or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cockpit.format import DASH, duration
from cockpit.report import values
from cockpit.report.charts.chart import is_log
from cockpit.report.charts.timeline import bounds, spark
from cockpit.report.document import (
    Block,
    Chart,
    Document,
    Facts,
    Kind,
    Section,
    Shares,
    Table,
    Text,
    Timeline,
    Value,
)

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$]|^[#+=-]|:(?=//)|(?<=www)\.)")
"""Characters that Markdown interprets: anywhere, at the start of a line, or in URLs."""
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
_MENTION = re.compile(r"@(?=\w)")
BAR_CELLS = 40


def markdown(document: Document) -> str:
    parts = [
        f"# {_plain(document.title)}",
        f"**{values.TONES[document.tone]}** {_plain(document.verdict, 1_000)}",
        _facts(document.facts, document),
        *(part for section in document.sections for part in _section(section, document)),
    ]
    if document.footer:
        parts.append(_plain(document.footer))
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section, document: Document) -> list[str]:
    parts = [f"## {_plain(section.title)}"]
    curves = [block for block in section.blocks if isinstance(block, Chart)]
    if curves:
        parts += _charts(curves)
    parts += [_block(block, document) for block in section.blocks if not isinstance(block, Chart)]
    return parts


def _block(block: Block, document: Document) -> str:
    match block:
        case Facts():
            return _facts(block, document)
        case Table():
            return _table(block, document)
        case Text():
            return _plain(block.text, 2_000)
        case Timeline():
            return _timeline(block)
        case Shares():
            return _shares(block)
        case Chart():
            return "\n\n".join(_charts([block]))


def _facts(facts: Facts, document: Document) -> str:
    rows = []
    for fact in facts.facts:
        value = _cell(fact.value, fact.kind, document)
        note = f" ({_plain(fact.note)})" if fact.note else ""
        rows.append(f"- {_plain(fact.title or values.title_of(fact.name))}: {value}{note}")
    return "\n".join(rows)


def _table(table: Table, document: Document) -> str:
    columns = [table.columns[at] for at in table.listed]
    head = [_plain(column.title or values.title_of(column.name)) for column in columns]
    rule = [
        ":--" if column.kind.is_text or column.kind is Kind.MOMENT else "--:" for column in columns
    ]
    lines = [_row(head), _row(rule)]
    for number, row in enumerate(table.rows):
        cells = [_cell(row[at], table.kind_at(number, at), document) for at in table.listed]
        lines.append(_row(cells))
    parts = [f"**{_plain(table.title)}**" if table.title else "", "\n".join(lines)]
    parts.append(_plain(table.note, 1_000) if table.note else "")
    return "\n\n".join(part for part in parts if part)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _charts(curves: Sequence[Chart]) -> list[str]:
    lines = [
        _row(["chart", "", "lowest", "highest", "last"]),
        _row([":--", ":--", "--:", "--:", "--:"]),
    ]
    for chart in curves:
        log = is_log(chart)
        for line in chart.lines:
            name = chart.title if len(chart.lines) == 1 else f"{chart.title}: {line.label}"
            name += ", logarithmic" if log else ""
            low, high = bounds(line)
            numbers = [low, high, line.values[-1] if len(line.values) else None]
            cells = [_plain(values.shown(value, chart.kind)) for value in numbers]
            # A code span keeps the bars in one width, and its blanks.
            lines.append(
                _row(
                    [_plain(name), f"`|{spark(line, chart, log=log)}|`".replace("|", "\\|"), *cells]
                )
            )
    if not curves:
        return []
    took = duration(curves[0].end_s - curves[0].begin_s)
    text = f"From left to right {took} of the run; a blank is a gap, × a value that is not finite."
    return ["\n".join(lines), _plain(text)]


def _timeline(timeline: Timeline) -> str:
    """A line a lane: the letters of the phases over the time of the run."""
    letters = dict(zip(timeline.order, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False))
    width = (timeline.end_s - timeline.begin_s) / BAR_CELLS
    if width <= 0:
        return ""
    lines = []
    for lane in dict.fromkeys(span.lane for span in timeline.spans):
        cells = ["·"] * BAR_CELLS
        spans = sorted(
            (span for span in timeline.spans if span.lane == lane),
            key=lambda span: span.begin_s - span.end_s,
        )
        for span in spans:  # the longest first: a short one remains visible
            first = int((span.begin_s - timeline.begin_s) / width)
            last = max(first + 1, round((span.end_s - timeline.begin_s) / width))
            for cell in range(max(0, first), min(BAR_CELLS, last)):
                cells[cell] = letters.get(span.name, "?")
        lines.append(f"{values.text(lane, 16):<16} {''.join(cells)}")
    named = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    return "```text\n" + "\n".join(lines).replace("`", "'") + "\n```\n\n" + _plain(named, 1_000)


def _shares(shares: Shares) -> str:
    cells = "".join(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[at % 26] * round(BAR_CELLS * share.percent / 100)
        for at, share in enumerate(shares.shares)
    )
    named = ", ".join(
        f"{'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[at % 26]} {share.name}"
        for at, share in enumerate(shares.shares)
    )
    return f"```text\n{cells}\n```\n\n{_plain(named, 1_000)}"


def _cell(value: Value, kind: Kind, document: Document) -> str:
    shown = values.shown(value, kind, document.begin_s)
    if kind in (Kind.TEXT, Kind.LINK) and shown != DASH:
        return code(shown)
    return _plain(shown, 1_000)


def code(text: str) -> str:
    """A code span of any text: a fence longer than any row of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    # A table takes a bar for its own, even in a code span.
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def _plain(text: str, limit: int = 300) -> str:
    """Plain text: what would be a sign of Markdown is escaped, and no user is mentioned."""
    clean = _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", values.text(text, limit)))
    return _MENTION.sub("@\u2060", clean)
