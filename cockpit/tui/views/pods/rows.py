"""Pods as rows, each with what its Ray node uses. Rows are made for those in sight alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from cockpit import format
from cockpit.model.cluster import Node, Pod
from cockpit.model.text import one_line
from cockpit.store.selectors import age_s, current_run, pods_in_order
from cockpit.store.store import Store
from cockpit.tui.rows.sort import Order, SortKey, sort_key
from cockpit.tui.rows.text import pod_style
from cockpit.tui.widgets.table.table import Cell, Column, LazyRows, Row

REASON_CELLS = 200
"""No column wants more, however long a reason is."""


class PodLine(Struct, frozen=True):
    """A pod with what is known of it from elsewhere."""

    pod: Pod
    node: Node | None
    ranks: tuple[int, ...]
    now_s: float

    @property
    def live(self) -> Node | None:
        """Its Ray node, while there is something to measure."""
        return None if self.pod.ended_s is not None else self.node

    @property
    def style(self) -> str:
        return "muted" if self.pod.ended_s is not None else ""


class _Field(Struct, frozen=True):
    column: Column
    cell: Callable[[PodLine], Cell]
    key: Callable[[PodLine], SortKey]


def _plain_field(column: Column, text: Callable[[Pod], str], style: str = "muted") -> _Field:
    return _Field(
        column,
        lambda line: Cell(text(line.pod) or format.DASH, style or line.style),
        lambda line: sort_key(text(line.pod)),
    )


NAME_CELLS = 24
"""The part of a pod's name that is kept when it is cut."""
_GROUP = _plain_field(Column("group", "GROUP", priority=5), lambda pod: pod.group)
_PHASE = _Field(
    Column("phase", "PHASE", width=11),
    lambda line: Cell(line.pod.phase.value, pod_style(line.pod)),
    lambda line: sort_key(line.pod.phase.value),
)
_READY = _Field(
    Column("ready", "READY", width=5, priority=6),
    lambda line: Cell(
        "yes" if line.pod.ready else "no",
        line.style if line.pod.ready or line.pod.ended_s is not None else "warning",
    ),
    lambda line: (0, float(line.pod.ready), ""),
)
_RANKS = _Field(
    Column("ranks", "RANKS", align="right"),
    lambda line: Cell(few(line.ranks), line.style),
    lambda line: sort_key(line.ranks[0] if line.ranks else None),
)
_CPU = _Field(
    Column("cpu", "CPU", width=5, align="right", priority=2),
    lambda line: Cell(format.percent(line.live.cpu_percent if line.live else None), line.style),
    lambda line: sort_key(line.live.cpu_percent if line.live else None),
)
_MEMORY = _Field(
    Column("memory", "MEMORY", width=9, align="right", priority=3),
    lambda line: Cell(
        format.bytes_text(line.live.memory_used_bytes if line.live else None), line.style
    ),
    lambda line: sort_key(line.live.memory_used_bytes if line.live else None),
)
_GPUS = _Field(
    Column("gpus", "GPUS", width=4, align="right", priority=1),
    lambda line: Cell(f"{line.pod.gpus:g}" if line.pod.gpus else format.DASH, line.style),
    lambda line: sort_key(line.pod.gpus or None),
)
_RESTARTS = _Field(
    Column("restarts", "RST", width=4, align="right", priority=1),
    lambda line: Cell(str(line.pod.restarts), "warning" if line.pod.restarts else "muted"),
    lambda line: (0, float(line.pod.restarts), ""),
)
_AGE = _Field(
    Column("age", "AGE", width=5, align="right"),
    lambda line: Cell(format.age(age_s(line.pod.created_s or None, line.now_s)), line.style),
    lambda line: sort_key(-line.pod.created_s if line.pod.created_s else None),
)
_REPLICA = _plain_field(
    Column("replica", "REPLICA", priority=4, cut="middle"), lambda pod: pod.replica
)
_IP = _plain_field(Column("ip", "IP", priority=7), lambda pod: pod.ip)
_HOST = _plain_field(Column("host", "HOST", priority=8), lambda pod: pod.host)
_KUBERNETES_NODE = _plain_field(
    Column("node", "K8S NODE", min_width=10, priority=4, cut="middle"), lambda pod: pod.host
)
_REASON = _Field(
    Column("reason", "REASON", min_width=17, grow=1),
    lambda line: Cell(
        one_line(line.pod.reason), "muted" if line.pod.ready else pod_style(line.pod)
    ),
    lambda line: sort_key(line.pod.reason),
)


class PodRows:
    """Sorts and filters again only when the pods, the order or the filter have changed."""

    def __init__(self) -> None:
        self.shown: list[Pod] = []
        self._fields: tuple[_Field, ...] = ()
        self._about: tuple[object, ...] = ()
        self._query: tuple[object, ...] = ()
        self._nodes: dict[str, Node] = {}
        self._ranks: dict[str, tuple[int, ...]] = {}
        self._texts: dict[str, tuple[Pod, str]] = {}
        self._widest: dict[int, int] = {}
        self._keys: list[str] = []

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(field.column for field in self._fields)

    def rows(self, store: Store, now_s: float, order: Order) -> LazyRows:
        """`columns` are those of the rows given last."""
        self._learn(store)
        query = (*self._about, order.by, order.down, order.text)
        if _differ(query, self._query):
            self._query = query
            self._fields = _fields(store)
            self.shown = self._ordered(store, order)
            self._keys = [pod.name for pod in self.shown]
            self._widest = self._widths()
        pods, fields = self.shown, self._fields

        def make(index: int) -> Row:
            line = self._line(pods[index], now_s)
            return Row(line.pod.name, tuple(field.cell(line) for field in fields))

        return LazyRows(self._keys, make, self._widest)

    def _learn(self, store: Store) -> None:
        """Facts about a pod that its Kubernetes object does not contain."""
        run = current_run(store)
        attempt = run.attempt if run else None
        if attempt is not None and attempt.ended_s is not None:
            attempt = None
        placements = attempt.placements if attempt else ()
        about = (store.pods, store.nodes, placements, store.ref)
        if not _differ(about, self._about):
            return
        before, self._about = self._about, about
        if not before or store.nodes is not before[1]:
            # The living one last: an address may have been used twice.
            nodes = sorted(store.nodes.values(), key=lambda node: node.alive)
            self._nodes = {node.ip: node for node in nodes}
        if not before or placements is not before[2]:
            ranks: dict[str, list[int]] = {}
            for placement in placements:
                ranks.setdefault(placement.node_ip, []).append(placement.rank)
            self._ranks = {ip: tuple(sorted(found)) for ip, found in ranks.items()}

    def _line(self, pod: Pod, now_s: float) -> PodLine:
        ranks = self._ranks.get(pod.ip, ()) if pod.ip else ()
        return PodLine(pod, self._nodes.get(pod.ip), ranks, now_s)

    def _ordered(self, store: Store, order: Order) -> list[Pod]:
        pods = pods_in_order(store)
        if order.text:
            wanted = order.text.casefold()
            pods = [pod for pod in pods if wanted in self._text(pod)]
        field = next((field for field in self._fields if field.column.key == order.by), None)
        if field is not None:
            key = field.key
            pods.sort(key=lambda pod: key(self._line(pod, 0.0)), reverse=order.down)
        elif order.down:
            pods.reverse()
        if len(self._texts) > 2 * len(store.pods):
            self._texts.clear()
        return pods

    def _text(self, pod: Pod) -> str:
        """The text that a filter searches."""
        cached = self._texts.get(pod.name)
        if cached is not None and cached[0] is pod:
            return cached[1]
        terms = (pod.name, pod.group, pod.phase.value, pod.ip, pod.host, pod.replica, pod.reason)
        text = "\n".join(terms).casefold()
        self._texts[pod.name] = (pod, text)
        return text

    def _widths(self) -> dict[int, int]:
        """Of the columns whose cells differ in length, so that scrolling does not move them."""
        texts: dict[str, Iterable[str]] = {
            "pod": self._keys,
            "node": {pod.host for pod in self.shown},
            "reason": {pod.reason for pod in self.shown},
        }
        return {
            i: min(REASON_CELLS, max(map(len, texts[field.column.key]), default=0))
            for i, field in enumerate(self._fields)
            if field.column.key in texts
        }


def _fields(store: Store) -> tuple[_Field, ...]:
    """The columns that have a value in some row."""
    kubernetes = store.ref is not None and store.ref.backend == "kuberay"
    pods = store.pods.values()
    least = min(NAME_CELLS, max(map(len, store.pods), default=0)) or None
    name = _plain_field(
        Column("pod", "POD", min_width=least, cut="middle"), lambda pod: pod.name, ""
    )
    fields = [name, _GROUP, _PHASE, _READY, _RANKS, _CPU, _MEMORY]
    fields += [_GPUS] if any(pod.gpus for pod in pods) else []
    fields += [_RESTARTS, _AGE]
    fields += [_REPLICA] if any(pod.replica for pod in pods) else []
    fields += [_IP, _KUBERNETES_NODE] if kubernetes else [_IP, _HOST]
    return (*fields, _REASON)


def _differ(one: Sequence[object], other: Sequence[object]) -> bool:
    """Compare by identity what the store replaces as a unit, since comparing 5,000 pods is slow."""
    return len(one) != len(other) or any(
        a is not b and (not isinstance(a, (str, bool)) or a != b)
        for a, b in zip(one, other, strict=True)
    )


def few(ranks: tuple[int, ...]) -> str:
    """`0,1` or, when they follow one another, `0–7`."""
    if not ranks:
        return format.DASH
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}–{ranks[-1]}"
    return ",".join(map(str, ranks))
