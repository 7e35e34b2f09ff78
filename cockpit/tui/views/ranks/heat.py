"""The heat map of the ranks: a level for each, and the lines above it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from cockpit.format import inflected
from cockpit.tui.terminal.cells import width_of
from cockpit.tui.views.ranks.columns import Field, RankLine
from cockpit.tui.views.ranks.distribution import LEVELS, Distribution
from cockpit.tui.widgets.heatmap import (
    NAN,
    STALE,
    UNKNOWN,
    USUAL,
    WORST,
    HeatCell,
    StyledText,
    style_of,
    symbol_of,
)

Part = tuple[str, str]
"""Text, and its style."""
OUTLIERS_SHOWN = 6
LEAST_RANKS = 8
"""With fewer ranks, quantiles have no meaning."""


def cells(
    values: Iterable[tuple[RankLine, float | None]],
    field: Field,
    found: Distribution | None,
    passing: frozenset[int] | None,
) -> list[HeatCell]:
    """One per rank; `passing`: those that pass the filter, None without one."""
    return [
        HeatCell(
            line.rank.rank,
            _level(line, value, field, found),
            passing is not None and line.rank.rank not in passing,
        )
        for line, value in values
    ]


def _level(line: RankLine, value: float | None, field: Field, found: Distribution | None) -> int:
    if line.is_stale and line.sample is not None:
        return STALE
    if value is None or found is None:
        return UNKNOWN
    if math.isnan(value):
        return NAN
    level = found.level(value)
    return LEVELS - 1 - level if field.low_is_bad else level


def title(field: Field, found: Distribution | None) -> list[StyledText]:
    """The coloured value, and the ranges of the colours."""
    parts: list[StyledText] = [((f" {field.column.title}  ", "bold"),)]
    if found is None:
        return [*parts, (("no rank reports it", "muted"),)]
    show = field.text
    quantiles = f" p10 {show(found.p10)} · p50 {show(found.p50)} · p90 {show(found.p90)}  "
    parts.append(((symbol_of(USUAL), style_of(USUAL)), (quantiles, "")))
    legend = ((USUAL + 1, "worse"), (WORST, "far worse"), (USUAL - 1, "better"), (STALE, "stale"))
    for level, text in legend:
        parts.append(((symbol_of(level), style_of(level)), (f" {text}  ", "muted")))
    return parts


def spread_line(field: Field, found: Distribution | None, width: int) -> list[Part]:
    """Quantiles, extremes and outliers of one column, as much as there is room for."""
    if found is None or found.count < LEAST_RANKS:
        return []
    show = field.text
    far = [str(rank) for rank in found.outliers[:OUTLIERS_SHOWN]]
    if more := len(found.outliers) - len(far):
        far.append(f"+{more:,}")
    ranks = inflected(len(found.outliers), "rank")
    groups: list[Sequence[Part]] = [
        [(f" {field.column.title}", "bold")],
        [("  p50 ", "muted"), (show(found.p50), "")],
        [(f"  outliers: {ranks} {', '.join(far)}", "warning")]
        if far
        else [("  no outliers", "muted")],
        [("  p10–p90 ", "muted"), (f"{show(found.p10)} – {show(found.p90)}", "")],
        [("  max ", "muted"), (f"{show(found.high)} (rank {found.high_rank})", "")],
        [("  min ", "muted"), (f"{show(found.low)} (rank {found.low_rank})", "")],
    ]
    parts: list[Part] = []
    used = 0
    for group in groups:
        cells_wanted = sum(width_of(text) for text, _ in group)
        if used + cells_wanted > width:
            break
        parts += group
        used += cells_wanted
    return parts
