"""The line above the charts: the run, the visible range, and the position of the cursor."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from cockpit import format
from cockpit.store.run import RunView
from cockpit.tui.views.charts.curve_cache import step_at, time_at
from cockpit.tui.views.charts.viewport import Reach, Viewport
from cockpit.tui.widgets.chart.axis import Axis, place_text
from cockpit.tui.widgets.chart.marks import MARKS, Mark

NEAR = 0.02
"""A mark is near the cursor within this share of what is shown."""
_LABELS = {
    "drill": "drill",
    "alert": "alert",
    "attempt": "attempt",
    "mark": "mark",
    "cleared": "cleared",
    "checkpoint": "checkpoint",
}


def line(
    width: int,
    run: RunView | None,
    viewport: Viewport,
    reach: Reach | None,
    marks: Sequence[Mark],
    *,
    page: tuple[int, int] | None,
    ranks: bool,
    compared: Sequence[str],
    text: str,
    begun: float,
) -> Content:
    """`page`: which of how many; `begun`: the run's first sample, in Unix seconds."""
    name = f" {run.name or run.id}" if run else " No run yet"
    parts = [window_text(viewport, reach, begun)]
    parts += [f"charts {page[0]}/{page[1]}"] if page else []
    parts += ["one curve per rank"] if ranks else []
    parts += ["log"] if viewport.log else []
    parts += [f"smooth {viewport.weight:g}"] if viewport.weight else []
    parts += [f"with {', '.join(compared)}"] if compared else []
    parts += [f"only “{text}”"] if text else []
    left = Content.assemble(
        Content.styled(name, "bold"), Content.styled(f"  {' · '.join(parts)}", "$muted")
    )
    right = Content()
    if run is not None and reach is not None:
        start, end = viewport.shown(reach)
        if viewport.cursor is not None:
            right = _cursor(run, viewport, viewport.cursor, end - start, marks, reach, begun)
        else:
            right = _kinds([mark for mark in marks if start <= mark.at <= end])
    room = width - right.cell_length
    if room < left.cell_length + 2 and viewport.cursor is None:
        right, room = Content(), width
    left = left.truncate(max(0, room - 2), ellipsis=True) if left.cell_length > room - 2 else left
    gap = max(0, width - left.cell_length - right.cell_length)
    return Content.assemble(left, " " * gap, right)


def window_text(viewport: Viewport, reach: Reach | None, begun: float) -> str:
    """The visible range of the axis."""
    by = {Axis.STEP: " by step", Axis.SINCE: " since the start"}.get(viewport.axis, "")
    if viewport.span is None or reach is None:
        return f"whole run{by}"
    if viewport.end is None and viewport.by_step:
        return f"last {format.count(round(viewport.span))} steps"
    if viewport.end is None:
        return f"last {format.duration(viewport.span)}{by}"
    start, end = viewport.shown(reach)
    if viewport.by_step:
        return f"steps {round(start):,} to {round(end):,}"
    first, last = (place_text(viewport.axis, place, end, begun) for place in (start, end))
    return f"{first.removesuffix(' after the start')} to {last}"


def _cursor(
    run: RunView,
    viewport: Viewport,
    cursor: float,
    span: float,
    marks: Sequence[Mark],
    reach: Reach,
    begun: float,
) -> Content:
    at_s = time_at(run, cursor) if viewport.by_step else cursor
    step = cursor if viewport.by_step else step_at(run, cursor)
    parts = []
    if at_s is not None:
        parts.append(place_text(Axis.CLOCK, at_s, reach.newest, begun))
        if viewport.axis is not Axis.CLOCK:
            parts.append(f"+{format.duration(at_s - begun)}")
    if step is not None:
        parts.append(f"step {round(step):,}")
    text = Content.styled(" · ".join(parts), "bold")
    near = sorted(
        (mark for mark in marks if abs(mark.at - cursor) <= NEAR * span),
        key=lambda mark: abs(mark.at - cursor),
    )
    for mark in near[:2]:
        flag, style = MARKS[mark.kind]
        message = mark.label or _LABELS[mark.kind]
        text = Content.assemble(text, "  ", Content.styled(f"{flag} {message}", f"${style}"))
    return Content.assemble(text, " ")


def _kinds(marks: Sequence[Mark]) -> Content:
    """The legend of the visible letters. The meaning is first, since the letters are no keys."""
    there = {mark.kind for mark in marks}
    text = [
        Content.styled(f"{_LABELS[kind]} {flag}", f"${style}")
        for kind, (flag, style) in MARKS.items()
        if kind in there
    ]
    if not text:
        return Content()
    return Content.assemble(Content.styled("marks: ", "$muted"), Content(", ").join(text), " ")
