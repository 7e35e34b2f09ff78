"""The keys of the view of charts, as rows of the table in `cockpit.tui.keys`."""

from __future__ import annotations

from typing import NamedTuple


class ChartKey(NamedTuple):
    """As in `cockpit.tui.keys.Key`."""

    id: str
    keys: str
    shown: str
    label: str
    help: str
    footer: bool = True


CHART_KEYS = (
    ChartKey("chart_full", "enter", "enter", "full", "Show only this chart; esc shows all again"),
    ChartKey(
        "cursor_left",
        "left",
        "← →",
        "cursor",
        "Move the cursor, which shows the values of all curves",
    ),
    ChartKey("cursor_right", "right", "→", "cursor", "Move the cursor right", footer=False),
    ChartKey("zoom_in", "plus,equals_sign,z", "+ -", "zoom", "Zoom in around the cursor"),
    ChartKey("zoom_out", "minus,Z", "-", "wider", "Zoom out around the cursor", footer=False),
    ChartKey("pan_left", "left_square_bracket,pageup", "[ ]", "move", "Pan half a window earlier"),
    ChartKey(
        "pan_right", "right_square_bracket,pagedown", "]", "later", "Pan half a window later", False
    ),
    ChartKey("zoom_all", "f", "f", "all", "Show the whole run"),
    ChartKey("follow", "end,G", "end", "now", "Follow new data, without a cursor"),
    ChartKey("aggregate", "a", "a", "per rank", "One curve for each rank, or one for the run"),
    ChartKey("smooth", "s", "s", "smooth", "Smoothing: 0.6, 0.9, 0.97, off"),
    ChartKey("log_scale", "o", "o", "log", "Logarithmic or linear values"),
    ChartKey("x_axis", "x", "x", "axis", "X axis: time of day, time since the start, step"),
    ChartKey("compare", "c", "c", "compare", "Compare with other runs and recordings"),
    ChartKey("charts_next", "n", "n", "next", "Next page of charts; N the previous one"),
    ChartKey("charts_before", "N", "N", "before", "Previous page of charts", footer=False),
    ChartKey("chart_next", "down,j", "↓ ↑", "chart", "Next chart, previous chart", False),
    ChartKey("chart_before", "up,k", "↑", "chart", "Previous chart", False),
    ChartKey(
        "cursor_far_left", "shift+left", "shift ← →", "far", "Move the cursor by ten cells", False
    ),
    ChartKey(
        "cursor_far_right",
        "shift+right",
        "shift →",
        "far",
        "Move the cursor ten cells right",
        False,
    ),
    ChartKey("cursor_begin", "home,g", "home", "start", "Move the cursor to the left edge", False),
)
