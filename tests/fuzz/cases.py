"""How many cases a lane runs, how documents are broken, and what every decoder has to keep to.

The cases are the same in each run: `FUZZ_SEED=7 pytest tests/fuzz -m nightly` runs others.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import astuple

T = TypeVar("T")

SEED = int(os.environ.get("FUZZ_SEED", "0"))
QUICK = 40
"""Cases of one decoder in the quick lane."""
BATCH = 5
"""Values of an example: with one each, half of the time would be Hypothesis's own."""

PROFILE = settings(
    database=None,
    deadline=None,  # a case is judged by what it does, not by how busy the machine is
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
)

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1,
    2**31,
    2**63,
    10**19,
    10**400,
    -(10**30),
    0.5,
    1e15,
    1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    "nan",
    "-1",
    "9" * 400,
    "x" * 3000,
    "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f",
    "a\nb\rc\td\u2028e",
    "\u202eabc\u2066",
    "\ud800",
    "\x00",
    "０１２",
    "../../etc/passwd",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59-14:00",
    [],
    {},
    [[]],
    [None],
    ["a", 1],
    {"": {}},
    {"metadata": None},
    [[[[[[[[]]]]]]]],
)
"""Values that no writer of ours puts where they are put."""

VALUES = st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=8)
_CHANGES = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.sampled_from("====-+k"), VALUES), min_size=1, max_size=4
)


def quick_and_nightly(cases: int) -> pytest.MarkDecorator:
    """Run the test with `cases` in the nightly lane, and with fewer in the quick one."""
    return pytest.mark.parametrize("cases", [QUICK, pytest.param(cases, marks=pytest.mark.nightly)])


def examine(strategy: st.SearchStrategy[T], check: Callable[[T], object], cases: int) -> None:
    """Call `check` with this number of values of the strategy; the smallest failing is shown."""

    @seed(SEED)
    @settings(PROFILE, max_examples=cases // BATCH)
    @given(st.lists(strategy, min_size=BATCH, max_size=BATCH))
    def each(values: list[T]) -> None:
        for value in values:
            try:
                check(value)
            except BaseException:
                note(f"seed {SEED}: {value!r}")
                raise

    each()


def broken(*documents: Any) -> st.SearchStrategy[Any]:
    """One of the documents with 1 to 4 values replaced, removed, repeated or renamed."""
    texts = [json.dumps(document) for document in documents]
    return st.builds(_changed, st.sampled_from(texts), _CHANGES)


def broken_bytes(text: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """The text cut, repeated, or with bytes replaced; sometimes unchanged."""
    spots = st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(max_size=3)), max_size=3)
    return st.builds(_replaced, text, spots, st.sampled_from((None, None, 0.3, 0.9, 2)))


def _changed(text: str, changes: list[tuple[int, str, Any]]) -> Any:
    document = json.loads(text)
    for number, how, value in changes:
        places = list(_places(document))
        if not places:
            return value
        value = copy.deepcopy(value) if isinstance(value, (list, dict)) else value
        inside, key = places[number % len(places)]
        if how == "=":
            inside[key] = value
        elif how == "-":
            del inside[key]
        elif isinstance(inside, list):
            inside.insert(key, value if how == "+" else copy.deepcopy(inside[key]))
        else:
            inside[str(value)[:40]] = copy.deepcopy(inside[key]) if how == "+" else inside.pop(key)
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with every key in it."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield value, key
        if isinstance(item, (dict, list)):
            yield from _places(item)


def _replaced(text: bytes, spots: list[tuple[int, bytes]], cut: float | None) -> bytes:
    for number, data in spots:
        at = number % (len(text) + 1)
        text = text[:at] + data + text[at + len(data) :]
    if cut == 2:
        return text + text
    return text if cut is None else text[: int(len(text) * cut)]


def assert_clean(value: Any) -> None:
    """No text in the value holds a control character or half a character; lines may end."""
    for text in texts(value):
        if not text.isprintable():
            bad = [sign for sign in text if _is_control(sign)]
            assert not bad, f"{bad!r} in {text[:200]!r}"


def _is_control(sign: str) -> bool:
    return sign != "\n" and (
        sign < " "
        or "\x7f" <= sign <= "\x9f"
        or "\u2028" <= sign <= "\u202e"
        or "\u2066" <= sign <= "\u2069"
        or "\ud800" <= sign <= "\udfff"
    )


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and not isinstance(value, Enum):
        yield value
    elif isinstance(value, Struct):
        yield from texts(astuple(value))
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from texts(getattr(value, item.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts(key)
            yield from texts(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from texts(item)
