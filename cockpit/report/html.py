"""A document as one HTML file: no external resources, light and dark, printable.

All text that is not markup is escaped by `_escaped`. The page's content security policy also
forbids external resources, and scripts other than that of the replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from cockpit.format import DASH
from cockpit.report import replay, values
from cockpit.report.charts import chart as charts
from cockpit.report.charts.chart import chart_svg
from cockpit.report.charts.timeline import FILLS, shares_svg, timeline_svg
from cockpit.report.document import (
    Block,
    Chart,
    Document,
    Facts,
    Kind,
    MarkKind,
    Section,
    Shares,
    Table,
    Text,
    Timeline,
    Value,
)
from cockpit.report.replay import Frames

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
MARKS = {
    MarkKind.ATTEMPT: "A dashed line: an attempt starts",
    MarkKind.DRILL: "A line with ▼: a drill",
    MarkKind.CHECKPOINT: "A tick at the bottom: a checkpoint",
    MarkKind.ALERT: "▲ at the top: an alert",
    MarkKind.USER: "A dotted line: a moment that was marked",
}


def html(document: Document, frames: Frames | None = None) -> str:
    """The page. With `frames` it plays the run in a browser."""
    style = files("cockpit.report").joinpath("style.css").read_text(encoding="utf-8")
    policy = POLICY
    if frames is not None:
        style, policy = style + replay.style(frames), f"{POLICY}; {replay.policy()}"
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{_escaped(document.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>",
        f"<header>\n<h1>{_escaped(document.title)}</h1>",
        f'<p class="verdict {document.tone.value}"><b aria-hidden="true">'
        f"{values.TONES[document.tone]}</b>{_escaped(document.verdict, 1_000)}</p>",
        _facts(document.facts, document),
        _contents(document.sections, replayed=frames is not None),
        "</header>\n<main>",
        replay.section(frames) if frames is not None else "",
        *(_section(section, document) for section in document.sections),
        "</main>",
        f"<footer>{_escaped(document.footer)}</footer>" if document.footer else "",
        "</body>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _contents(sections: Sequence[Section], *, replayed: bool) -> str:
    first = ['<a href="#replay">Replay</a>'] if replayed else []
    links = (f'<a href="#{escape(s.name)}">{_escaped(s.title)}</a>' for s in sections)
    return f'<nav aria-label="Contents">{" ".join([*first, *links])}</nav>'


def _section(section: Section, document: Document) -> str:
    """Charts that follow one another share a grid, with the legend of their marks before it."""
    parts = [f'<section id="{escape(section.name)}">\n<h2>{_escaped(section.title)}</h2>']
    in_grid = False
    for block in section.blocks:
        if isinstance(block, Chart) != in_grid:
            in_grid = not in_grid
            parts.append(f'{_legend(document)}<div class="grid">' if in_grid else "</div>")
        parts.append(_block(block, document))
    if in_grid:
        parts.append("</div>")
    return "\n".join([*(part for part in parts if part), "</section>"])


def _block(block: Block, document: Document) -> str:
    match block:
        case Facts():
            return _facts(block, document)
        case Table():
            return _table(block, document)
        case Text():
            return f'<p class="note">{_escaped(block.text, 2_000)}</p>'
        case Chart():
            return _chart(block, document)
        case Timeline():
            return _timeline(block, document)
        case Shares():
            return _shares(block)


def _facts(facts: Facts, document: Document) -> str:
    reported = [
        (f.title or values.title_of(f.name), _cell(f.value, f.kind, document), f.note)
        for f in facts.facts
    ]
    if not facts.large:
        rows = "\n".join(
            f"<dt>{_escaped(title)}</dt><dd>{value}{_note(note)}</dd>"
            for title, value, note in reported
        )
        return f"<dl>\n{rows}\n</dl>"
    cards = "\n".join(
        f"<li><span>{_escaped(title)}</span><b>{value}</b>{_note(note)}</li>"
        for title, value, note in reported
    )
    return f'<ul class="cards">\n{cards}\n</ul>'


def _note(note: str) -> str:
    return f" <small>{_escaped(note)}</small>" if note else ""


def _table(table: Table, document: Document) -> str:
    head = "".join(
        f'<th scope="col"{_css(column.kind, head=True)}>'
        f"{_escaped(column.title or values.title_of(column.name))}</th>"
        for column in (table.columns[at] for at in table.listed)
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{_css(kind)}>{_cell(value, kind, document)}</td>"
            for value, kind in ((row[at], table.kind_at(number, at)) for at in table.listed)
        )
        + "</tr>"
        for number, row in enumerate(table.rows)
    )
    caption = f"<caption>{_escaped(table.title)}</caption>" if table.title else ""
    after = f'<p class="note">{_escaped(table.note)}</p>' if table.note else ""
    return (
        f'<div class="table"><table>{caption}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>{after}"
    )


def _css(kind: Kind, *, head: bool = False) -> str:
    if kind is Kind.MOMENT:
        return ' class="t"'
    if not kind.is_text:
        return ' class="n"'
    return ' class="x"' if kind in (Kind.TEXT, Kind.LINK) and not head else ""


def _cell(value: Value, kind: Kind, document: Document) -> str:
    shown = escape(values.shown(value, kind, document.begin_s), quote=True)
    if kind is Kind.LINK and isinstance(value, str) and value.startswith(("https://", "http://")):
        return f'<a rel="noreferrer noopener" href="{shown}">{shown}</a>'
    if kind is Kind.MOMENT and isinstance(value, (int, float)):
        instant = values.instant(value)
        since = values.since(value - document.begin_s)
        if instant == DASH:
            return shown
        return f'<time datetime="{instant}">{values.clock(value)}</time> <small>{since}</small>'
    return shown


def _chart(chart: Chart, document: Document) -> str:
    keys = []
    if len(chart.lines) > 1:
        keys = [
            f'<span><i class="k{at % charts.CURVES}"></i>{_escaped(line.label, 60)}</span>'
            for at, line in enumerate(chart.lines)
        ]
    if chart.band is not None:
        keys.append('<span><i class="kb"></i>p10 to p90 of the ranks</span>')
    if charts.is_log(chart):
        keys.append("<span>logarithmic</span>")
    caption = f"<figcaption>{''.join(keys)}</figcaption>" if keys else ""
    title = f"<h3>{_escaped(chart.title)}</h3>"
    return f"<figure>{title}{chart_svg(chart, document.marks)}{caption}</figure>"


def _timeline(timeline: Timeline, document: Document) -> str:
    keys = "".join(
        f'<span><i class="f{at % FILLS}"></i>{_escaped(name)}</span>'
        for at, name in enumerate(timeline.order)
    )
    svg = timeline_svg(timeline, document.marks)
    return f'<figure class="wide">{svg}<figcaption>{keys}</figcaption></figure>'


def _shares(shares: Shares) -> str:
    keys = "".join(
        f'<span><i class="f{at % FILLS}"></i>{_escaped(share.name)}'
        f" {values.shown(share.percent, Kind.PERCENT)}</span>"
        for at, share in enumerate(shares.shares)
    )
    return f'<figure class="wide">{shares_svg(shares)}<figcaption>{keys}</figcaption></figure>'


def _legend(document: Document) -> str:
    kinds = {mark.kind for mark in document.marks}
    reported = [text for kind, text in MARKS.items() if kind in kinds]
    text = ". ".join([*reported, "× at the top: a value that is not finite"])
    return f'<p class="legend">Time is since {_escaped(document.begin)}. {_escaped(text)}.</p>'


def _escaped(text: str, limit: int = 300) -> str:
    """Text, as text: one clean line, without secrets, nothing in it is markup."""
    return escape(values.text(text, limit), quote=True)
