"""The Markdown, read by a parser of GitHub's kind: what was written is text, tables are tables."""

from __future__ import annotations

import math

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from cockpit.report.charts.timeline import spark
from cockpit.report.document import Chart, Kind, Line
from cockpit.report.markdown import code, markdown
from cockpit.report.run_report import report
from tests.report.runs import EVIL, PASSWORD, RUN, TOKEN, rich


def tokens(text: str) -> list[Token]:
    parser = MarkdownIt("gfm-like", {"html": True})
    found: list[Token] = []
    for token in parser.parse(text):
        found += [token, *(token.children or [])]
    return found


@pytest.fixture(scope="module")
def plain() -> str:
    store = rich()
    return markdown(report(store, store.runs[RUN], read_from="demo.cockpit"))


@pytest.fixture(scope="module")
def evil() -> str:
    store = rich(EVIL)
    return markdown(report(store, store.runs[RUN], read_from=EVIL, trouble=[EVIL]))


def kinds(text: str) -> set[str]:
    return {token.type for token in tokens(text)}


def test_hostile_text_becomes_neither_markup_nor_links(evil: str) -> None:
    assert not kinds(evil) & {"html_block", "html_inline", "image", "link_open", "s_open"}
    strong = [t for t in tokens(evil) if t.type == "strong_open"]
    assert len(strong) == len([t for t in tokens(markdown_of("demo")) if t.type == "strong_open"])


def markdown_of(text: str) -> str:
    store = rich(text)
    return markdown(report(store, store.runs[RUN], read_from=text, trouble=[text]))


def test_hostile_text_breaks_no_table_and_no_heading(plain: str, evil: str) -> None:
    for kind in ("table_open", "tr_open", "td_open", "heading_open", "fence", "list_item_open"):
        count = [sum(token.type == kind for token in tokens(text)) for text in (plain, evil)]
        assert count[0] == count[1] > 0, kind


def test_report_mentions_no_user_by_name(evil: str) -> None:
    terms = [token.content for token in tokens(evil) if token.type == "text"]
    assert not any("@everyone" in text for text in terms)


def test_secrets_are_not_reported(plain: str) -> None:
    assert TOKEN not in plain
    assert PASSWORD not in plain


@pytest.mark.parametrize("text", ["a`b", "``", "`", " `x", "a|b", "x``y```z", "back\\slash"])
def test_a_code_span_holds_any_text(text: str) -> None:
    table = f"| a |\n| :-- |\n| {code(text)} |\n"
    (span,) = [token for token in tokens(table) if token.type == "code_inline"]
    assert span.content == text


@pytest.mark.parametrize(
    "words",
    ["1. a list", "# a head", "- a point", "+ x", "a_b_c", "<b>", "a *b* c", "&amp; x", "~~x~~"],
)
def test_plain_text_is_not_escaped(words: str) -> None:
    from cockpit.report.markdown import _plain

    found = tokens(_plain(words))
    assert {token.type for token in found} <= {
        "paragraph_open", "inline", "text", "text_special", "paragraph_close",
    }  # fmt: skip
    inline = next(token for token in found if token.type == "inline")
    assert "".join(token.content for token in inline.children or []) == words


def test_a_curve_is_a_line_of_bars_with_its_hole_and_its_nan() -> None:
    times = [float(n) for n in range(60) if not 20 <= n < 30]
    values = [math.nan if n == 40 else float(n) for n in times]
    line = Line("x", times, values)
    drawn = spark(line, Chart("x", "X", Kind.NUMBER, 0.0, 60.0, (line,)), cells=60)
    assert len(drawn) == 60
    assert drawn[20:30].strip() == ""
    assert drawn[40] == "×"
    bars = drawn.replace(" ", "").replace("×", "")
    assert bars == "".join(sorted(bars))
    assert (bars[0], bars[-1]) == ("▁", "█")


def test_a_sparse_curve_is_held_between_its_points() -> None:
    line = Line("x", [0.0, 10.0, 20.0, 30.0], [1.0, 2.0, 3.0, 4.0])
    drawn = spark(line, Chart("x", "X", Kind.NUMBER, 0.0, 31.0, (line,)), cells=31)
    assert drawn.count(" ") == 0


def test_the_phases_are_a_lane_an_attempt(plain: str) -> None:
    fences = [token.content for token in tokens(plain) if token.type == "fence"]
    lanes = next(text for text in fences if text.startswith("attempt 1")).splitlines()
    assert [lane[:9] for lane in lanes] == ["attempt 1", "attempt 2", "attempt 3"]
    assert len({len(lane) for lane in lanes}) == 1
