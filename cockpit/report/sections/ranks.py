"""The ranks: all of a small run; of a large one the quantiles and the outliers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from cockpit.report.document import Block, Column, Kind, Section, Table, Text, Value
from cockpit.store.run import RankView, RunView

ALL_UP_TO = 32
"""A larger world has its outliers listed, not its ranks."""
OUTLIERS = 20
COLUMNS = (
    Column("step", Kind.COUNT),
    Column("loss", Kind.NUMBER, "last loss"),
    Column("samples_per_s", Kind.RATE, "throughput"),
    Column("step_time_s", Kind.SECONDS, "step time"),
    Column("data_wait_s", Kind.SECONDS, "data wait"),
    Column("comm_s", Kind.SECONDS, "communication"),
    Column("mfu_percent", Kind.PERCENT, "MFU"),
    Column("gpu_utilization_percent", Kind.PERCENT, "GPU"),
    Column("gpu_memory_bytes", Kind.BYTES, "GPU memory"),
    Column("gpu_temperature_c", Kind.CELSIUS, "GPU temp."),
    Column("memory_bytes", Kind.BYTES, "memory"),
)
NEWEST = ("step", "loss")
"""Newest values; for the others the median over the stored curve of the rank."""
LEAST_MAD = 0.005
"""Relative to the median: with a smaller spread, there are no outliers."""
SCORE_FROM = 3.5
"""The robust z-score of an outlier (Iglewicz and Hoaglin, 1993)."""

Numbers = dict[str, float]


def ranks(run: RunView, scores: Mapping[int, float] | None = None) -> Section:
    """`scores`: how much of a straggler each rank is, where a diagnosis found it."""
    seen = {number: _numbers(view) for number, view in sorted(run.ranks.items()) if view.sample}
    if not seen:
        return Section("ranks", "Ranks", ())
    columns = [c for c in COLUMNS if any(c.name in numbers for numbers in seen.values())]
    blocks: list[Block] = []
    if len(seen) > 1:
        blocks.append(_quantiles(seen, columns))
    if len(seen) <= ALL_UP_TO:
        blocks.append(_table(run, seen, columns, {}, scores, "Each rank"))
    else:
        why = outliers(run, seen, scores or {})
        if why:
            title = f"Ranks that stand out, {len(why)} of {len(seen):,}"
            blocks.append(_table(run, seen, columns, why, scores, title))
        else:
            blocks.append(Text(f"None of the {len(seen):,} ranks stands out."))
    text = (
        "Each number is the median of the recorded part of the rank's curve; step and loss "
        "are the last values."
    )
    blocks.append(Text(text))
    return Section("ranks", "Ranks", tuple(blocks))


def outliers(
    run: RunView, seen: Mapping[int, Numbers], scores: Mapping[int, float]
) -> dict[int, str]:
    """Return the outliers with their reasons, strongest first: at most OUTLIERS.

    A reason is a loss that is not finite, missing data, a straggler score, or a value more than 3.5
    robust standard deviations (0.6745 · (x − median) / MAD) from the median of all ranks.
    """
    found: list[tuple[float, int, str]] = []
    for number, numbers in seen.items():
        if not math.isfinite(numbers.get("loss", 0.0)):
            found.append((math.inf, number, "its loss is not finite"))
        if (score := scores.get(number, 0.0)) >= SCORE_FROM:
            found.append((1e6 + score, number, f"a straggler, score {score:.1f}"))
    found += [(1e9, number, "silent") for number in run.silent if number in seen]
    for column in COLUMNS:
        if column.name in NEWEST:
            continue
        by_rank = {n: values[column.name] for n, values in seen.items() if column.name in values}
        for number, score in _robust(by_rank).items():
            if abs(score) >= SCORE_FROM:
                side = "high" if score > 0 else "low"
                found.append((abs(score), number, f"{column.title} is {side}"))
    why: dict[int, str] = {}
    for _, number, text in sorted(found, key=lambda item: (-item[0], item[1])):
        if number in why:
            why[number] += f", {text}"
        elif len(why) < OUTLIERS:
            why[number] = text
    return why


def _robust(numbers: Mapping[int, float]) -> dict[int, float]:
    """Robust z of each finite value."""
    finite = {number: value for number, value in numbers.items() if math.isfinite(value)}
    if len(finite) < 4:
        return {}
    middle = median(finite.values())
    mad = median(abs(value - middle) for value in finite.values())
    scale = max(mad, LEAST_MAD * abs(middle))
    if scale == 0:
        return {}
    return {number: 0.6745 * (value - middle) / scale for number, value in finite.items()}


def _numbers(view: RankView) -> Numbers:
    numbers: Numbers = {}
    for column in COLUMNS:
        value: float | None
        if column.name in NEWEST:
            value = getattr(view.sample, column.name)
        else:
            finite = [v for v in view.curves[column.name].values if math.isfinite(v)]
            value = median(finite) if finite else None
        if value is not None:
            numbers[column.name] = value
    return numbers


def _table(
    run: RunView,
    seen: Mapping[int, Numbers],
    columns: Sequence[Column],
    why: Mapping[int, str],
    scores: Mapping[int, float] | None,
    title: str,
) -> Table:
    chosen = list(why) if why else list(seen)
    head = [Column("rank", Kind.COUNT), Column("node", Kind.TEXT)]
    tail = [Column("straggler_score", Kind.NUMBER, "straggler")] if scores else []
    if why:
        tail.append(Column("why", Kind.LABEL))
    rows: list[tuple[Value, ...]] = []
    for number in chosen:
        placement = run.ranks[number].placement
        score = (scores or {}).get(number)
        end: list[Value] = [None if score is None else round(score, 1)] if scores else []
        if why:
            end.append(why[number])
        rows.append(
            (
                number,
                placement.node_ip if placement else "",
                *(seen[number].get(column.name) for column in columns),
                *end,
            )
        )
    return Table("ranks", (*head, *columns, *tail), tuple(rows), title)


def _quantiles(seen: Mapping[int, Numbers], columns: Sequence[Column]) -> Table:
    """A row a number: its quantiles over the ranks by nearest rank, and the ranks at the ends."""
    rows: list[tuple[Value, ...]] = []
    for column in columns:
        reported = [
            (numbers[column.name], n) for n, numbers in seen.items() if column.name in numbers
        ]
        finite = sorted(pair for pair in reported if math.isfinite(pair[0]))
        if not finite:
            continue
        last = len(finite) - 1
        at = [finite[round(last * q)][0] for q in (0.0, 0.1, 0.5, 0.9, 1.0)]
        rows.append((column.title or column.name, *at, finite[0][1], finite[last][1]))
    names = ("lowest", "p10", "p50", "p90", "highest")
    by_row = [column for column in columns if any(column.name in n for n in seen.values())]
    kinds = {column.title or column.name: column.kind for column in by_row}
    return Table(
        "rank_quantiles",
        (
            Column("metric", Kind.LABEL),
            *(Column(name, Kind.NUMBER) for name in names),
            Column("lowest_rank", Kind.COUNT),
            Column("highest_rank", Kind.COUNT),
        ),
        tuple(rows),
        f"Over {len(seen):,} ranks",
        row_kinds=tuple(kinds[str(row[0])] for row in rows),
    )
