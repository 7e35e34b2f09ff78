"""The content of a report, independent of its format: sections of facts, tables and pictures.

Values are raw (seconds, bytes, Unix times). A `Kind` defines their formatting, so that all writers
format them equally and JSON keeps the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct, field


class Kind(StrEnum):
    """The type of a value, which defines its formatting."""

    TEXT = "text"
    """Text from elsewhere: a name, a reason, a log line."""
    LABEL = "label"
    """A term of cockpit."""
    LINK = "link"
    """An address; only http and https ones become links."""
    COUNT = "count"
    NUMBER = "number"
    SECONDS = "seconds"
    PERCENT = "percent"
    BYTES = "bytes"
    RATE = "rate"
    WATTS = "watts"
    CELSIUS = "celsius"
    MOMENT = "moment"
    """Unix seconds, shown as the time of day in UTC and as time since the run's start."""

    @property
    def is_text(self) -> bool:
        return self in (Kind.TEXT, Kind.LABEL, Kind.LINK)


Value = str | int | float | None


class Tone(StrEnum):
    """The state of the run, shown as a symbol with a colour, never as a colour alone."""

    GOOD = "good"
    MIXED = "mixed"
    BAD = "bad"
    GOING = "going"


class Fact(Struct, frozen=True):
    name: str
    """In snake_case with its unit: the key in JSON."""
    value: Value
    kind: Kind = Kind.TEXT
    title: str = ""
    """Text that is shown instead of the name."""
    note: str = ""


class Facts(Struct, frozen=True):
    facts: tuple[Fact, ...]
    large: bool = False
    """Key numbers: shown large, side by side."""


class Column(Struct, frozen=True):
    name: str
    kind: Kind = Kind.NUMBER
    title: str = ""


class Table(Struct, frozen=True):
    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    title: str = ""
    note: str = ""
    """What was left out, or how to read it."""
    row_kinds: tuple[Kind, ...] = ()
    """For a table whose rows differ in kind: one a row, for its columns of kind NUMBER."""

    @property
    def listed(self) -> tuple[int, ...]:
        """Which columns have anything in any row: the others need no room."""
        return tuple(
            at
            for at in range(len(self.columns))
            if any(row[at] not in (None, "") for row in self.rows)
        )

    def kind_at(self, row: int, column: int) -> Kind:
        kind = self.columns[column].kind
        return self.row_kinds[row] if self.row_kinds and kind is Kind.NUMBER else kind


T = TypeVar("T")
Columns = Sequence[tuple[Column, Callable[[T], Value]]]
"""Each column beside the function that reads its value of an item."""


def table(
    name: str, columns: Columns[T], items: Iterable[T], title: str = "", note: str = ""
) -> Table:
    """A row for each item."""
    rows = tuple(tuple(read(item) for _, read in columns) for item in items)
    return Table(name, tuple(column for column, _ in columns), rows, title, note)


class Text(Struct, frozen=True):
    text: str
    """Our own text; text from elsewhere in them is one clean line."""


class MarkKind(StrEnum):
    ATTEMPT = "attempt"
    DRILL = "drill"
    CHECKPOINT = "checkpoint"
    ALERT = "alert"
    USER = "mark"


class Mark(Struct, frozen=True):
    """Something that happened, on the time axis of every chart."""

    kind: MarkKind
    at_s: float
    label: str


class Line(Struct, frozen=True):
    """A curve. `times` are Unix seconds, ascending; `values` may be NaN or infinite."""

    label: str
    times: Sequence[float]
    values: Sequence[float]


class Band(Struct, frozen=True):
    """From the 10th to the 90th percentile over the ranks."""

    times: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Chart(Struct, frozen=True):
    name: str
    title: str
    kind: Kind
    begin_s: float
    end_s: float
    lines: tuple[Line, ...]
    band: Band | None = None
    breaks: tuple[float, ...] = ()
    """Unix times across which no line is drawn: an attempt ended."""


class Span(Struct, frozen=True):
    """One bar of a timeline."""

    lane: str
    name: str
    begin_s: float
    end_s: float


class Timeline(Struct, frozen=True):
    """Bars over time, in lanes."""

    name: str
    begin_s: float
    end_s: float
    spans: tuple[Span, ...]
    order: tuple[str, ...]
    """The names in the order of the legend; their colours follow it."""
    lane: str = "attempt"
    """What a lane is, as a noun."""


class Share(Struct, frozen=True):
    """A share, in percent."""

    name: str
    percent: float
    note: str = ""


class Shares(Struct, frozen=True):
    """Shares that add up to 100 %, as one bar with its legend."""

    name: str
    title: str
    shares: tuple[Share, ...]


Block = Facts | Table | Text | Chart | Timeline | Shares


class Section(Struct, frozen=True):
    name: str
    title: str
    blocks: tuple[Block, ...]


class Document(Struct, frozen=True):
    title: str
    verdict: str
    tone: Tone
    begin_s: float
    """Moments and charts count from it."""
    facts: Facts
    """What was run, where and when."""
    sections: tuple[Section, ...]
    marks: tuple[Mark, ...] = field(default=())
    footer: str = ""
    begin: str = "the start of the run"
    """What `begin_s` is, as text."""
