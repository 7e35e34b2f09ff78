"""Goodput by cause, and the parts of a step."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit import __version__
from cockpit.format import duration
from cockpit.insight.metrics import bottleneck
from cockpit.insight.metrics.cost import Cost
from cockpit.insight.metrics.goodput import Goodput
from cockpit.insight.metrics.gpu_use import gpu_use
from cockpit.insight.metrics.progress import as_it_ran
from cockpit.report.document import (
    Block,
    Column,
    Columns,
    Fact,
    Facts,
    Kind,
    Section,
    Share,
    Shares,
    Table,
    Text,
    table,
)
from cockpit.report.time_range import extent
from cockpit.store.run import RunView
from cockpit.store.store import SourceState, Store


def goodput_section(found: Goodput | None, spent: Cost | None) -> Section:
    """Useful time and the losses, which add up to the run's wall time, and what they cost."""
    if found is None or found.wall_s <= 0:
        return Section("goodput", "Goodput", ())
    shares = tuple(Share(name, percent) for name, percent in found.parts)
    per_hour = spent.per_hour if spent is not None else 0.0
    rows = tuple(
        (
            share.name,
            found.seconds[share.name],
            share.percent,
            spent.lost_gpu_hours.get(share.name) if spent is not None else None,
            *([round(found.seconds[share.name] / 3600 * per_hour, 2)] if per_hour else []),
        )
        for share in shares
    )
    currency = f", {spent.currency}" if spent is not None and spent.currency else ""
    columns = (
        Column("cause", Kind.LABEL, "category"),
        Column("duration_s", Kind.SECONDS, "total"),
        Column("share_percent", Kind.PERCENT, "share"),
        Column("lost_gpu_hours", Kind.NUMBER, "GPU-hours lost"),
        *([Column("cost", Kind.NUMBER, f"cost{currency}")] if per_hour else []),
    )
    blocks: tuple[Block, ...] = (
        Shares("goodput", "Goodput by cause", shares),
        Table("goodput", columns, rows),
        *([Text(f"Cost: {spent.text}.")] if spent is not None and spent.text else []),
    )
    return Section("goodput", "Goodput", blocks)


def bottleneck_section(run: RunView) -> Section:
    """The shares of a step over the newest attempt that stepped."""
    found = bottleneck.shares(as_it_ran(run), float("inf"))
    gpus = gpu_use(as_it_ran(run), float("inf"))
    used = [Text(f"GPUs: {gpus.text}. What to try: {gpus.bound.todo}.")] if gpus else []
    if found is None:
        return Section("bottleneck", "Bottleneck", tuple(used))
    shares = tuple(Share(name, percent) for name, percent in found.parts)
    rows = tuple((share.name, share.percent) for share in shares)
    columns = (
        Column("part", Kind.LABEL),
        Column("share_percent", Kind.PERCENT, "share of a step"),
    )
    text = (
        f"The largest part is {found.largest}. What to try: {found.todo}. Over"
        f" {duration(found.window_s)} of the last attempt that stepped, mean of the ranks."
    )
    return Section(
        "bottleneck",
        "Bottleneck",
        (
            Shares("bottleneck", "Parts of a step", shares),
            Table("bottleneck", columns, rows),
            Text(text),
            *used,
        ),
    )


NOTES = (
    "Curves of the run are means over its ranks, or their sums if the title states it; the band is"
    " from the 10th to the 90th percentile of the ranks. Curves are bounded: the newest part"
    " of a long one is whole, the past is thinned evenly, by means of neighbors. Medians and"
    " percentiles of key numbers are over time, while the run was RUNNING. A number without a"
    " source is left out or a dash, never a zero. Times are UTC, and since the start of the run."
)


def measured(store: Store, run: RunView, read_from: str, trouble: Sequence[str] = ()) -> Section:
    """`trouble`: what is missing of what was read, a sentence each."""
    when = extent(run)
    facts = (
        Fact("read_from", read_from, title="read from"),
        Fact("cockpit_version", __version__, title="cockpit"),
        Fact("ray_version", store.ray_version, title="Ray"),
        Fact("rank_samples", run.samples_seen, Kind.COUNT, "records of ranks"),
        Fact("reporting", run.reporting, Kind.COUNT, "ranks that reported in the last tick"),
        Fact("duration_s", when.duration_s, Kind.SECONDS, "time covered"),
    )
    blocks: list[Block] = [Text(text) for text in trouble]
    blocks.append(Facts(tuple(f for f in facts if f.value not in ("", None))))
    columns: Columns[SourceState] = (
        (Column("source", Kind.LABEL), lambda of: of.name),
        (
            Column("state", Kind.LABEL, "at the end"),
            lambda of: "absent" if of.absent else "ok" if of.ok else "failed",
        ),
        (Column("ok_s", Kind.MOMENT, "last update"), lambda of: of.ok_s),
        (Column("error", Kind.TEXT), lambda of: of.error),
    )
    if store.sources:
        blocks.append(table("sources", columns, store.sources.values()))
    blocks.append(Text(NOTES))
    return Section("measured", "How it was measured", tuple(blocks))
