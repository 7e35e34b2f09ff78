from __future__ import annotations

import ast
import math
import re
from itertools import pairwise
from pathlib import Path

import pytest

from cockpit import format


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (-2, "0 s"), (3.9, "3 s"), (125, "2 m"), (7300, "2 h"), (200_000, "2 d")],
)
def test_an_age_is_reported_in_one_unit(seconds: float | None, text: str) -> None:
    assert format.age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0.0 s"),
        (0.000_02, "20 µs"),
        (0.035, "35 ms"),
        (18.5, "18.5 s"),
        (59.97, "1 m 00 s"),
        (245, "4 m 05 s"),
        (4320, "1 h 12 m"),
        (183_600, "2 d 3 h"),
        (-0.4, "-400 ms"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
    ],
)
def test_a_duration_keeps_what_matters(seconds: float | None, text: str) -> None:
    assert format.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "–"), (0, "0 B"), (512, "512 B"), (1288490189, "1.2 GiB"), (1023, "1.0 KiB")],
)
def test_bytes_are_binary(size: float | None, text: str) -> None:
    assert format.bytes_text(size) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (1234.5, "1.23k"),
        (999.9, "1k"),
        (0.0012, "1.2m"),
        (-25_000_000, "-25M"),
        (1e20, "100000P"),
        (math.nan, "NaN"),
        (-math.inf, "-∞"),
    ],
)
def test_si_prefixes(value: float | None, text: str) -> None:
    assert format.si(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (2.30258, "2.303"), (0.01, "0.01000"), (1e-9, "1.000e-09")],
)
def test_a_number_keeps_its_significant_digits(value: float | None, text: str) -> None:
    assert format.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(150.0, "150"), (1.5, "1.500"), (math.nan, "NaN"), (None, "–"), (0.0, "0")]
)
def test_a_reported_whole_number_has_no_decimals(value: float | None, text: str) -> None:
    assert format.reported(value) == text


def test_unknown_value_is_never_shown_as_zero() -> None:
    unknown = [format.rate(None), format.percent(None), format.count(None)]
    assert unknown == ["–", "–", "–"]


def test_rates_percents_and_counts() -> None:
    assert format.rate(1234.5) == "1.23k/s"
    assert format.percent(61.6) == "62 %"
    assert format.count(20_000) == "20,000"


def test_the_screen_the_cli_and_the_report_show_a_duration_alike() -> None:
    from cockpit.report.document import Kind
    from cockpit.report.values import shown

    for seconds in (0.0004, 0.035, 18.46, 59.97, 125.0, 5_385.0, 200_000.0):
        assert shown(seconds, Kind.SECONDS) == format.duration(seconds)
    assert format.duration(5_385.0) == "1 h 29 m"


def test_plurals_and_lists_of_ranks() -> None:
    assert [format.plural(count, "step") for count in (0, 1, 2, 20_000)] == [
        "0 steps",
        "1 step",
        "2 steps",
        "20,000 steps",
    ]
    assert format.plural(0.5, "CPU") == "0.5 CPUs"
    assert [format.plural(count, "failed try") for count in (1, 3)] == [
        "1 failed try",
        "3 failed tries",
    ]
    assert format.plural(2, "day") == "2 days"
    assert format.ranks([3]) == "rank 3"
    assert format.ranks([5, 1, 2]) == "ranks 1, 2, 5"
    assert format.ranks(range(40), most=2) == "ranks 0, 1, … (40)"
    assert [format.verb(1, form) for form in ("have", "are", "make")] == ["has", "is", "makes"]
    assert format.verb(2, "have") == "have"


def test_limits_are_shown_in_one_unit_as_they_were_given() -> None:
    assert [format.in_seconds(seconds) for seconds in (600, 0.5, 600.0)] == [
        "600 s",
        "0.5 s",
        "600 s",
    ]
    assert [format.in_seconds(5385.26, 1), format.in_seconds(59.9, 0)] == ["5,385.3 s", "60 s"]
    assert [format.in_seconds(-0.04, 1), format.in_seconds(-0.06, 1)] == ["0.0 s", "-0.1 s"]
    assert [format.in_minutes(5400), format.in_hours(5400, 1)] == ["90 min", "1.5 h"]


# -- the only place

PACKAGE = Path(__file__).parents[1] / "cockpit"
NOT_PROSE = {
    "alerts/prometheus_rules.py",  # durations of PromQL
    "alerts/rule_file.py",
    "sources/prometheus/history.py",
    "sources/prometheus/past_alerts.py",
    "backends/kuberay/resources/describe.py",  # ages as `kubectl describe` prints them
    "tui/widgets/chart/axis.py",  # labels of ticks, as narrow as possible
    "drills/faults/network.py",  # a parameter in ms, in its own unit
    "report/animation.py",  # CSS
    "report/cast.py",  # escape sequences
    "format.py",
}
_UNIT = re.compile(r" ?(ns|µs|ms|s|min|m|h|d)\b")
_TEMPLATE = re.compile(r"\{[^{}]*\}" + _UNIT.pattern)


def _is_inline(node: ast.AST) -> bool:
    """Whether the text of a number with its unit, or of a plural, is made here."""
    match node:
        case ast.JoinedStr(values=values):
            return any(
                isinstance(number, ast.FormattedValue)
                and isinstance(unit, ast.Constant)
                and _UNIT.match(str(unit.value)) is not None
                for number, unit in pairwise(values)
            )
        case ast.Constant(value=str(text)):
            return (
                _TEMPLATE.search(text) is not None or re.search(r"[a-z]\(e?s\)", text) is not None
            )
        case ast.IfExp(
            test=ast.Compare(comparators=[ast.Constant(value=1)]), body=one, orelse=other
        ):
            texts = [ast.unparse(text).strip("f\"'") for text in (one, other)]
            return abs(len(texts[0]) - len(texts[1])) == 1 and (
                f"{texts[0]}s" == texts[1] or f"{texts[1]}s" == texts[0]
            )
        case ast.BinOp(op=ast.Mult(), left=ast.Constant(value="s")):
            return True
    return False


def test_no_other_module_words_a_duration_or_a_plural() -> None:
    found = [
        f"cockpit/{name}:{getattr(node, 'lineno', '')}"
        for path in sorted(PACKAGE.rglob("*.py"))
        # A script that runs in a pod uses the standard library only.
        if (name := path.relative_to(PACKAGE).as_posix()) not in NOT_PROSE
        and "pod_scripts" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if _is_inline(node)
    ]
    assert found == [], "use cockpit.format: duration, in_seconds, plural, verb"


@pytest.mark.parametrize(
    "text",
    [
        "f'{wait_s:.0f} s'",
        "f'after {1000 * wait_s:g}ms'",
        "'{:g} min'",
        "f'{count} step' if count == 1 else f'{count} steps'",
        "'' if count == 1 else 's'",
        "'s' * (count != 1)",
        "f'{count} step(s)'",
    ],
)
def test_inline_durations_and_plurals_are_found(text: str) -> None:
    assert any(_is_inline(node) for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("text", ["f'{name} says'", "'wss' if tls == 'on' else 'ws'", "f'{n} h2'"])
def test_other_texts_are_not_taken_for_durations(text: str) -> None:
    assert not any(_is_inline(node) for node in ast.walk(ast.parse(text)))
