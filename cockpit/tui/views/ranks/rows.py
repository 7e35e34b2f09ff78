"""Ranks as rows: the node, the resource use, the speed, and the age of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from msgspec import Struct

from cockpit.store.run import RankView, RunView
from cockpit.store.selectors import STALE_AFTER_S, age_s, only_reports, ranks_in_order
from cockpit.store.store import Store
from cockpit.tui.rows.fields import chosen, lazy_rows
from cockpit.tui.rows.sort import Order
from cockpit.tui.views.ranks.columns import Field, RankLine, fields_of, reported_fields, warning_of
from cockpit.tui.views.ranks.distribution import Distribution, distribution
from cockpit.tui.widgets.table.table import Column, LazyRows

RANKS_A_TICK = 64
"""In a larger world, this number of ranks reports each second, in rotation."""
SCORES_EVERY_S = 5.0
MARKS = ("stale", "silent", "warning")
"""Keywords of the filter for ranks."""


class Shown(Struct, frozen=True):
    """The rows, and the text about them."""

    rows: LazyRows
    total: int
    stale: tuple[int, ...]
    problem: str
    """The part of the filter that could not be parsed."""
    passing: frozenset[int] | None
    """The ranks that pass the filter; None without one."""


class RankRows:
    """Sorts and filters by the values behind the cells; rows are made for those in sight alone."""

    def __init__(self) -> None:
        self.fields: tuple[Field, ...] = ()
        self._lines: list[RankLine] = []
        self._run: RunView | None = None
        self._scores: dict[int, float] = {}
        self._scored_s = -math.inf
        self._warned = ""
        """The run in which a rank had a warning: its column is kept."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the rows given last."""
        return tuple(field.column for field in self.fields)

    def field(self, key: str) -> Field | None:
        return next((field for field in self.fields if field.column.key == key), None)

    def rows(self, store: Store, run: RunView | None, now_s: float, order: Order) -> Shown:
        self._learn(store, run, now_s)
        shown, problem = chosen(
            self._lines, self.fields, order, text=_text, marks=MARKS, is_marked=_is_marked
        )
        passing = frozenset(line.rank.rank for line in shown) if order.text else None
        widest = {
            number: max((len(text(line)) for line in self._lines), default=0)
            for number, field in enumerate(self.fields)
            if (text := _TEXTS.get(field.column.key)) is not None
        }
        rows = lazy_rows(shown, self.fields, lambda line: str(line.rank.rank), widest)
        stale = tuple(line.rank.rank for line in self._lines if line.is_stale and line.sample)
        return Shown(rows, len(self._lines), stale, problem, passing)

    def values(self, field: Field) -> Iterator[tuple[RankLine, float | None]]:
        """Of every rank, filtered or not, in the order of the ranks."""
        for line in self._lines:
            value = field.value(line)
            yield line, value if isinstance(value, float) else None

    def distribution(self, field: Field) -> Distribution | None:
        run = self._run
        spread = run.spreads.get(field.attribute) if run is not None else None
        numbers = [
            (line.rank.rank, value) for line, value in self.values(field) if value is not None
        ]
        return distribution(numbers, spread)

    def _learn(self, store: Store, run: RunView | None, now_s: float) -> None:
        self._run = run
        if run is None:
            self._lines, self.fields = [], fields_of(None)
            return
        self._score(run, now_s)
        pods = {pod.ip: pod.name for pod in store.pods.values()}
        stale = frozenset(run.silent) if _is_wide(run) else frozenset[int]()
        saved_s = age_s(run.checkpoint_s, _end_s(run, now_s))
        reports = only_reports(run)  # when it likes: none of its ranks is late
        limit_s = math.inf if run.state.is_over or reports else stale_after_s(run)
        scores = self._scores
        self._lines = []
        for rank in ranks_in_order(run):
            age = _age_s(run, rank, now_s)
            ip = rank.placement.node_ip if rank.placement else ""
            is_stale_rank = rank.rank in stale and not run.state.is_over
            self._lines.append(
                RankLine(
                    rank,
                    now_s,
                    pods.get(ip, "") if ip else "",
                    age,
                    age is None or age > limit_s or is_stale_rank,
                    is_stale_rank,
                    scores.get(rank.rank),
                    saved_s,
                )
            )
        fields = reported_fields(run) if reports else fields_of(run, straggler=bool(scores))
        # A warning is temporary; a table whose columns change is hard to read.
        if any(field.column.key == "warning" for field in fields):
            self._warned = run.id
        elif self._warned == run.id and not reports:
            fields = _with_warning(fields)
        self.fields = fields

    def _score(self, run: RunView, now_s: float) -> None:
        if 0 <= now_s - self._scored_s < SCORES_EVERY_S:
            return
        self._scored_s = now_s
        self._scores = straggler_scores(run)


def rank_columns(run: RunView | None) -> tuple[Column, ...]:
    """The columns that have a value in some row."""
    return tuple(field.column for field in fields_of(run))


def stale_after_s(run: RunView) -> float:
    """The age from which a rank's newest sample is late.

    In a large run a rank is sampled only at intervals; the stream reports which ranks are stale.
    """
    turns = math.ceil((run.world_size or len(run.ranks)) / RANKS_A_TICK) if _is_wide(run) else 0
    return STALE_AFTER_S + turns


def is_stale(run: RunView, rank: RankView, now_s: float) -> bool:
    """Whether what is known of the rank is no longer the present. Of a run that is over, never."""
    if only_reports(run) or (run.state.is_over and rank.sample is not None):
        return False
    age = _age_s(run, rank, now_s)
    return age is None or age > stale_after_s(run) or (_is_wide(run) and rank.rank in run.silent)


def line_of(store: Store, run: RunView, rank: RankView, now_s: float) -> RankLine:
    """One rank as the table would have it."""
    ip = rank.placement.node_ip if rank.placement else ""
    pod = next((pod.name for pod in store.pods.values() if ip and pod.ip == ip), "")
    return RankLine(
        rank,
        now_s,
        pod,
        _age_s(run, rank, now_s),
        is_stale(run, rank, now_s),
        _is_wide(run) and rank.rank in run.silent and not run.state.is_over,
        straggler_scores(run).get(rank.rank),
        age_s(run.checkpoint_s, _end_s(run, now_s)),
    )


def _age_s(run: RunView, rank: RankView, now_s: float) -> float | None:
    """Of the rank's newest sample, or of the newest report where there are only those."""
    if only_reports(run):
        return age_s(run.reported_s, now_s)
    return age_s(rank.sample.at_s if rank.sample else None, now_s)


def straggler_scores(run: RunView) -> dict[int, float]:
    """How far each rank is behind the others, as `cockpit.insight.detectors.straggler` has it."""
    from cockpit.insight.detectors.straggler import scores

    return scores(run)


def _is_wide(run: RunView) -> bool:
    return bool(run.spreads) and (run.world_size or len(run.ranks)) > RANKS_A_TICK


def _end_s(run: RunView, now_s: float) -> float:
    return run.ended_s if run.ended_s is not None else now_s


def _with_warning(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    from cockpit.tui.views.ranks.columns import TREND, WARNING

    at = fields.index(TREND)
    return (*fields[:at], WARNING, *fields[at:])


def _is_marked(line: RankLine, mark: str) -> bool:
    if mark == "stale":
        return line.is_stale
    return line.is_stale_rank if mark == "silent" else bool(warning_of(line))


def _text(line: RankLine) -> str:
    """The text in which filters search: names, not numbers, for which there are comparisons."""
    terms = (f"rank {line.rank.rank}", line.pod, line.node, warning_of(line))
    return "\n".join(terms).casefold()


_TEXTS: dict[str, Callable[[RankLine], str]] = {
    "pod": lambda line: line.pod,
    "node": lambda line: line.node,
    "warning": warning_of,
}
"""The columns whose cells differ in length, so that scrolling does not move them."""
