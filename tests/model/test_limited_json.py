"""JSON of unknown origin is decoded only within the limits."""

from __future__ import annotations

import json
import math

import pytest

from cockpit.model.decoding.limited_json import MAX_DEPTH, LimitError, loads


@pytest.mark.parametrize(
    "text",
    [
        "null",
        '{"a": [1, -2.5, "x", true, null]}',
        '"' + "[" * 1000 + '"',
        '["\\"' + "[" * 1000 + '", "\\\\"]',
        '["\\\\", "' + "{" * 1000 + '"]',
        '{"[": "]", "]": "["}',
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        json.dumps([{"k" * 5: [{}]}] * 1000),
        '{"id": "' + "1234567890" * 8 + '"}',
        '["\\ud800", "\u2028", "日本"]',
    ],
)
def test_documents_within_the_limits_are_decoded(text: str) -> None:
    assert loads(text) == json.loads(text)
    assert loads(text.encode("utf-8", "surrogatepass")) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    ["[NaN, -Infinity, 1e999]", '["\\ud800", "\ud800"]', str(10**40), "5e-324", '{"a": 1, "a": 2}'],
)
def test_values_are_those_of_the_standard_library(text: str) -> None:
    assert repr(loads(text)) == repr(json.loads(text))


@pytest.mark.parametrize(("opening", "inside", "closing"), [("[", "", "]"), ('{"a":', "1", "}")])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 10_000, 200_000])
def test_deep_nesting_is_refused(opening: str, inside: str, closing: str, depth: int) -> None:
    with pytest.raises(LimitError, match="levels deep"):
        loads(opening * depth + inside + closing * depth)


def test_mixed_nesting_is_counted_by_both_brackets() -> None:
    text = '[{"a":' * 32 + "1" + "}]" * 32
    assert loads(text)
    with pytest.raises(LimitError):
        loads(f"[{text}]")


@pytest.mark.parametrize(
    "text", ["[" * 300_000, "]" * 3000, '["' + "[" * 100, "[}" * 2000, "", "x"]
)
def test_invalid_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)


def test_size_and_number_of_values_are_limited() -> None:
    with pytest.raises(LimitError, match="MiB"):
        loads("[1]" + " " * 100, max_bytes=100)
    assert loads("[" + "1," * 98 + "1]", max_values=100) == [1] * 99
    with pytest.raises(LimitError, match="values"):
        loads("[" + "1," * 100 + "1]", max_values=100)
    with pytest.raises(LimitError, match="values"):
        loads("[" + "[]," * 60 + "1]", max_values=100)


def test_long_numbers_become_floats() -> None:
    assert loads("[" + "9" * 63 + "]") == [10**63 - 1]
    [large, low, high] = loads(f"[1{'0' * 80}, -{'9' * 400}, {'9' * 5000}]")
    assert large == 1e80
    assert (low, high) == (-math.inf, math.inf)
    assert math.isnan(loads("NaN"))


@pytest.mark.parametrize("value", [10**12, None, 1.5, [], memoryview(b"1")])
def test_only_text_and_bytes_are_taken(value: object) -> None:
    """`bytes(10**12)` would allocate a terabyte."""
    with pytest.raises(TypeError):
        loads(value)  # type: ignore[arg-type]
