"""The HTML file: self-contained, valid, and without markup from external text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from cockpit.report.document import (
    Column,
    Document,
    Fact,
    Facts,
    Kind,
    Section,
    Table,
    Text,
    Tone,
)
from cockpit.report.html import html
from cockpit.report.run_report import report
from tests.report.runs import EVIL, PASSWORD, RUN, TOKEN, rich

HTML = (
    "html head meta title style body header main footer nav section h1 h2 h3 p a b i small span",
    "ul li dl dt dd div table caption thead tbody tr th td time figure figcaption",
    "svg desc g path line rect circle text",
)
TAGS = {tag for line in HTML for tag in line.split()}
VOID = {"meta"}
NO_END = {"path", "line", "rect", "circle"}
"""Of SVG: written `<path …/>`."""


class Page(HTMLParser):
    """Every tag and attribute, and whether they are well nested."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in NO_END
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words += data


@pytest.fixture(scope="module")
def plain() -> str:
    store = rich()
    return html(report(store, store.runs[RUN], read_from="demo.cockpit"))


@pytest.fixture(scope="module")
def evil() -> str:
    store = rich(EVIL)
    return html(report(store, store.runs[RUN], read_from=EVIL, trouble=[EVIL]))


def test_a_report_is_well_formed_and_of_known_tags(plain: str) -> None:
    page = Page(plain)
    assert page.open == []
    assert set(page.tags) <= TAGS
    assert plain.startswith("<!doctype html>")


def test_nothing_is_fetched_and_nothing_runs(plain: str, evil: str) -> None:
    for page in (plain, evil):
        parsed = Page(page)
        assert "script" not in parsed.tags
        assert {name for name, _ in parsed.attributes} & {"src", "srcset", "style", "data"} == set()
        assert not [name for name, _ in parsed.attributes if name.startswith("on")]
        style = page[page.index("<style>") : page.index("</style>")]
        assert not re.search(r"url\(|@import|https?:", style)
        policy = next(value for name, value in parsed.attributes if "default-src" in value)
        assert "default-src 'none'" in policy
        assert "script-src" not in policy


def test_hostile_text_is_shown_as_text_and_changes_no_tag(plain: str, evil: str) -> None:
    tame, hostile = Page(plain), Page(evil)
    assert set(hostile.tags) <= TAGS
    assert hostile.open == []
    for tag in ("a", "h2", "table", "tr", "td", "li", "dt", "svg", "figure"):
        # One sentence more: the trouble.
        assert hostile.tags.count(tag) == tame.tags.count(tag), tag
    assert "<script>alert(1)</script>" in hostile.words, "it is there, as text"
    assert "\x1b" not in evil


def test_links_lead_to_the_tracker_and_inside_and_nowhere_else(evil: str) -> None:
    links = [value for name, value in Page(evil).attributes if name == "href"]
    outside = [link for link in links if not link.startswith("#")]
    assert outside == ["https://mlflow.example/#/runs/1"]


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", " https://x", "file:///x"]
)
def test_only_http_addresses_become_links(url: str) -> None:
    facts = Facts((Fact("url", url, Kind.LINK),))
    page = html(Document("t", "v", Tone.GOOD, 0.0, facts, ()))
    assert not [value for name, value in Page(page).attributes if name == "href"]


def test_secrets_are_not_reported(plain: str) -> None:
    assert TOKEN not in plain
    assert PASSWORD not in plain
    assert "max_tokens=4096" in plain


def test_every_section_is_in_the_contents(plain: str) -> None:
    parsed = Page(plain)
    links = [value[1:] for name, value in parsed.attributes if name == "href" and value[0] == "#"]
    ids = [value for name, value in parsed.attributes if name == "id"]
    assert links == ids
    assert ids == [
        "numbers", "charts", "goodput", "bottleneck", "phases", "attempts", "drills",
        "checkpoints", "ranks", "alerts", "trials", "tracked", "events", "measured",
    ]  # fmt: skip


def test_html_report_is_small(plain: str) -> None:
    assert len(plain.encode()) < 400_000


def test_a_column_of_nothing_is_left_out_and_a_value_of_nothing_is_a_dash() -> None:
    columns = (Column("a", Kind.COUNT), Column("empty_s", Kind.SECONDS), Column("b", Kind.TEXT))
    rows = ((1, None, "x"), (None, None, "y"))
    section = Section("s", "S", (Table("t", columns, rows), Text("word")))
    page = html(Document("t", "v", Tone.GOOD, 0.0, Facts(()), (section,)))
    assert "empty" not in page
    assert '<td class="n">–</td><td class="x">y</td>' in page


def test_light_dark_and_print_are_all_seen_to(plain: str) -> None:
    assert "@media screen and (prefers-color-scheme: dark)" in plain
    assert "@media print" in plain
    light, dark = plain.split("@media screen", 1)
    named = set(re.findall(r"var\((--[\w-]+)\)", plain))
    for name in named:
        assert f"{name}:" in light
        if name != "--rule":
            assert f"{name}:" in dark.split("@media print")[0]
