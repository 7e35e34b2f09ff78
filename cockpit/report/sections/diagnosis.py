"""Where the time went: goodput by cause, and what a step waits for."""

from __future__ import annotations

from cockpit.format import duration
from cockpit.insight.metrics import bottleneck
from cockpit.insight.metrics.cost import cost
from cockpit.insight.metrics.goodput import Goodput
from cockpit.report.document import (
    Block,
    Column,
    Kind,
    Section,
    Share,
    Shares,
    Table,
    Text,
)
from cockpit.report.time_range import as_it_ran
from cockpit.store.run import RunView


def goodput_section(found: Goodput | None, gpus: int) -> Section:
    """Useful time, and what took the rest: together the whole of the run's wall time."""
    if found is None or found.wall_s <= 0:
        return Section("goodput", "Goodput", ())
    shares = tuple(Share(name, percent) for name, percent in found.parts)
    seconds = {"useful": found.useful_s, **found.lost_s}
    spent = cost(found, gpus)
    rows = tuple(
        (
            share.name,
            seconds[share.name],
            share.percent,
            spent.lost_gpu_hours.get(share.name) if spent is not None else None,
        )
        for share in shares
    )
    columns = (
        Column("cause", Kind.WORD, "time was"),
        Column("duration_s", Kind.SECONDS, "in all"),
        Column("share_percent", Kind.PERCENT, "share"),
        Column("lost_gpu_hours", Kind.NUMBER, "GPU-hours lost"),
    )
    blocks: tuple[Block, ...] = (
        Shares("goodput", "Goodput by cause", shares),
        Table("goodput", columns, rows),
    )
    return Section("goodput", "Goodput", blocks)


def bottleneck_section(run: RunView) -> Section:
    """The shares of a step over the newest attempt that stepped."""
    found = bottleneck.shares(as_it_ran(run), float("inf"))
    if found is None:
        return Section("bottleneck", "Bottleneck", ())
    shares = tuple(Share(name, percent) for name, percent in found.parts)
    rows = tuple((share.name, share.percent) for share in shares)
    columns = (
        Column("part", Kind.WORD),
        Column("share_percent", Kind.PERCENT, "share of a step"),
    )
    words = (
        f"The largest part is {found.largest}. What to try: {found.todo}. Over"
        f" {duration(found.window_s)} of the last attempt that stepped, mean of the ranks."
    )
    return Section(
        "bottleneck",
        "Bottleneck",
        (
            Shares("bottleneck", "Parts of a step", shares),
            Table("bottleneck", columns, rows),
            Text(words),
        ),
    )
