"""How it was measured: which sources spoke, since when, and with what."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit import __version__
from cockpit.report.document import Block, Column, Fact, Facts, Kind, Section, Table, Text, Value
from cockpit.report.time_range import extent
from cockpit.store.run import RunView
from cockpit.store.store import Store

NOTES = (
    "Curves of the run are means over its ranks, or their sums if the title states it; the band is"
    " from the 10th to the 90th percentile of the ranks. Curves are bounded: the newest part"
    " of a long one is whole, the past is thinned evenly, by means of neighbours. Medians and"
    " percentiles of key numbers are over time, while the run was RUNNING. A number without a"
    " source is left out or a dash, never a zero. Times are UTC, and since the start of the run."
)


def measured(store: Store, run: RunView, read_from: str, trouble: Sequence[str] = ()) -> Section:
    """`trouble`: what is missing of what was read, a sentence each."""
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (
            source.name,
            "absent" if source.absent else "ok" if source.ok else "failed",
            source.ok_s,
            source.error,
        )
        for source in store.sources.values()
    )
    when = extent(run)
    facts = (
        Fact("read_from", read_from, title="read from"),
        Fact("cockpit_version", __version__, title="cockpit"),
        Fact("ray_version", store.ray_version, title="Ray"),
        Fact("rank_samples", run.samples_seen, Kind.COUNT, "records of ranks"),
        Fact("reporting", run.reporting, Kind.COUNT, "ranks that reported in the last tick"),
        Fact("duration_s", when.duration_s, Kind.SECONDS, "time covered"),
    )
    blocks: list[Block] = [Text(words) for words in trouble]
    blocks.append(Facts(tuple(f for f in facts if f.value not in ("", None))))
    if rows:
        blocks.append(
            Table(
                "sources",
                (
                    Column("source", Kind.WORD),
                    Column("state", Kind.WORD, "at the end"),
                    Column("ok_s", Kind.MOMENT, "last update"),
                    Column("error", Kind.TEXT),
                ),
                rows,
            )
        )
    blocks.append(Text(NOTES))
    return Section("measured", "How it was measured", tuple(blocks))
