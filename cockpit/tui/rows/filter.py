"""The filter of a table: text, comparisons such as `gpu<50`, and marks. Pure."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias, TypeVar

from msgspec import Struct

Value: TypeAlias = float | str | None
T = TypeVar("T")

_SCALES = {
    "": 1.0, "%": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "kib": 2.0**10, "mib": 2.0**20,
    "gib": 2.0**30, "tib": 2.0**40, "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0,
    "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 1.0, "c": 1.0, "°c": 1.0,
}  # fmt: skip
"""Units that may follow a number, in any case. `m` is a million; minutes are `min`."""
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TERM = re.compile(r"(?P<name>[A-Za-z_][\w./%-]*?)(?P<by><=|>=|!=|<|>|=|~)(?P<value>\S+)")
_DIGITS = re.compile(r"(\d+)")
_AROUND = re.compile(r"\s*(<=|>=|!=|<|>|=|~)\s*")
_NUMBER = re.compile(r"(?P<number>[-+]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?P<unit>\D*)")


class Test(Struct, frozen=True):
    """`name by value`: a column compared with a value."""

    name: str
    by: str
    value: str

    def holds(self, found: Value) -> bool:
        """An unknown value fails every comparison except "not equal"."""
        if found is None or found == "":
            return self.by == "!="
        if self.by == "~":
            return self.value.casefold() in str(found).casefold()
        wanted = number(self.value)
        if self.by in ("=", "!="):
            same = (
                _same(found, wanted, self.value)
                if isinstance(found, float)
                else str(found).casefold() == self.value.casefold()
            )
            return same == (self.by == "=")
        return wanted is not None and isinstance(found, float) and _COMPARE[self.by](found, wanted)


class Condition(Struct, frozen=True):
    """All of its parts must hold. An empty one holds for every row."""

    tests: tuple[Test, ...] = ()
    marks: tuple[str, ...] = ()
    """Such as `stale`: what a row is, or is not."""
    terms: tuple[str, ...] = ()
    """Texts that must be in the row, casefolded."""
    problem: str = ""
    """What could not be parsed, in one line."""

    def holds(
        self,
        value: Callable[[str], Value],
        is_marked: Callable[[str], bool],
        text: Callable[[], str],
    ) -> bool:
        """`value` gives a column's value by its name, `text` all that the row shows, casefolded."""
        return (
            all(test.holds(value(test.name)) for test in self.tests)
            and all(map(is_marked, self.marks))
            and (not self.terms or _has_all(text(), self.terms))
        )


def parsed(text: str, names: Mapping[str, str], marks: Collection[str] = ()) -> Condition:
    """Parse a condition. `names`: from column names to keys.

    Terms are separated by spaces; a comparison may have spaces around its operator. A comparison
    with an unknown name, or of an order with a text, is ignored and reported in `problem`: a filter
    is parsed at each key press, when it may be incomplete.
    """
    tests: list[Test] = []
    marked: list[str] = []
    terms: list[str] = []
    problem = ""
    for part in _AROUND.sub(r"\1", text.strip()).split():
        match = _TERM.fullmatch(part)
        if match is None:
            (marked if part.casefold() in marks else terms).append(part.casefold())
            continue
        name, by, value = match["name"].casefold(), match["by"], match["value"]
        if name not in names:
            columns = ", ".join(sorted(set(names)))
            problem = f"there is no column {match['name']}; available: {columns}"
        elif by in _COMPARE and number(value) is None:
            problem = f"{value} is not a number, so {match['name']} cannot be compared with it"
        else:
            tests.append(Test(names[name], by, value))
    return Condition(tuple(tests), tuple(marked), tuple(terms), problem)


def sort_key(value: Value) -> tuple[int, float, tuple[tuple[bool, int, str], ...]]:
    """Numbers by value, then NaN, then text; `worker-9` is before `worker-10`."""
    if isinstance(value, float):
        return (1, 0.0, ()) if math.isnan(value) else (0, value, ())
    parts = _DIGITS.split(str(value).casefold())
    return (
        2,
        0.0,
        tuple(
            (part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts if part
        ),
    )


def ordered(lines: list[T], value: Callable[[T], Value] | None, *, down: bool) -> list[T]:
    """Sort by a value, NaN as the largest, with unknown values last; without `value`, unsorted."""
    if value is None:
        return lines[::-1] if down else lines
    with_value = [(key, line) for line in lines if (key := value(line)) not in (None, "")]
    unknown = [line for line in lines if value(line) in (None, "")]
    with_value.sort(key=lambda pair: sort_key(pair[0]), reverse=down)
    return [line for _, line in with_value] + unknown


def number(text: str) -> float | None:
    """`50`, `1.2s`, `80GiB`, `1e-3`, `12%` as a number; None if it is none."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    unit = match["unit"].strip().casefold()
    scale = _SCALES.get(unit)
    if scale is None:
        return None
    return float(match["number"].replace(",", "").replace("_", "")) * scale


def _same(found: float, wanted: float | None, text: str) -> bool:
    """Equal at the typed precision: `0.35` equals what rounds to it.

    `nan` and `inf` are accepted.
    """
    if math.isnan(found):
        return text.casefold() == "nan"
    if math.isinf(found):
        return text.casefold().lstrip("+-") in ("inf", "infinity", "∞")
    match = _NUMBER.fullmatch(text)
    if wanted is None or match is None:
        return False
    digits = match["number"].casefold()
    unit = number("1" + match["unit"]) or 1.0
    power = int(digits.partition("e")[2] or 0) - len(digits.partition("e")[0].partition(".")[2])
    return abs(found - wanted) <= unit * 10.0**power / 2


def _has_all(text: str, terms: tuple[str, ...]) -> bool:
    return all(label in text for label in terms)
