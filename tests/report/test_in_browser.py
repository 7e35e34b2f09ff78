"""Reports and replays in headless Chromium: on a phone and a desktop, light and dark, and printed.

Nightly, since it needs a browser; tests/report/test_html.py and test_replay_page.py check the same
files without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.report.animation import svg
from cockpit.report.html import html
from cockpit.report.replay import Frames
from cockpit.report.run_report import report
from tests.report.browser import Page, browser, program
from tests.report.runs import EVIL, RUN, rich
from tests.report.test_film import film
from tests.report.test_replay_page import HOSTILE, frames

pytestmark = pytest.mark.nightly

PHONE, DESKTOP = (390, 844), (1440, 900)
LOOKS = [(size, scheme) for size in (PHONE, DESKTOP) for scheme in ("light", "dark")]
CONTRAST = 4.5
"""Of text to its background (WCAG 2.2, 1.4.3)."""
COLOURS = """(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const back = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0.99) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !node.checkVisibility() || node.closest("svg"))
      continue;
    if (node.closest("#screen, script, style, noscript")) continue;
    const front = rgb(getComputedStyle(node).color), behind = back(node);
    const [low, high] = [light(front), light(behind)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    found.push([ratio, walk.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]).slice(0, 5);
})()"""
WIDE = """[...document.querySelectorAll("body *")].filter((node) => {
  if (!node.checkVisibility() || node.closest("svg")) return false;
  for (let at = node; at; at = at.parentElement)
    if (/auto|scroll|hidden/.test(getComputedStyle(at).overflowX) && at !== node) return false;
  return node.getBoundingClientRect().right > innerWidth + 1;
}).map((node) => node.tagName + "." + node.className + ": " + node.textContent.slice(0, 40))"""


TALLEST = """Math.max(...[...document.querySelectorAll("tr")].map(
  (row) => row.getBoundingClientRect().height))"""
MOST_ROW_PX = 220
"""About ten lines: a text of 300 characters."""
LABELS = """[...document.querySelectorAll(".grid svg text")].filter((text) => {
  const at = text.getBoundingClientRect(), all = text.closest("svg").getBoundingClientRect();
  return at.height < 8 || at.left < all.left - 1 || at.right > all.right + 1;
}).map((text) => text.textContent + " " + text.getBoundingClientRect().height)"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if program() is None:
        pytest.skip("apt-get install chromium")
    with browser(tmp_path_factory.mktemp("browser") / "profile") as page:
        yield page


def opened(page: Page, folder: Path, text: str, name: str = "page.html") -> Page:
    (file := folder / name).write_text(text, encoding="utf-8")
    page.errors.clear()
    page.open(file.as_uri())
    return page


def a_report(replay: Frames | None = None) -> str:
    store = rich(EVIL)
    return html(report(store, store.runs[RUN], read_from=EVIL), replay)


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_report_fits_and_is_readable(
    page: Page, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    page.show(*size, scheme, mobile=size == PHONE)
    opened(page, tmp_path, a_report(frames()))
    page.until("!document.getElementById('replay').hidden")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.evaluate(WIDE) == []
    assert page.evaluate(TALLEST) < MOST_ROW_PX
    assert page.evaluate(LABELS) == [], "labels of charts that are cut, or too small to read"
    weakest = page.evaluate(COLOURS)
    assert weakest[0][0] >= CONTRAST, weakest
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    channels = [int(number) for number in re.findall(r"\d+", dark)[:3]]
    assert (max(channels) < 128) == (scheme == "dark"), dark
    assert page.errors == []
    assert page.picture(whole=True).startswith(b"\x89PNG")


def test_report_is_printed_in_pages_without_the_replay(page: Page, tmp_path: Path) -> None:
    page.show(*DESKTOP, "dark")
    opened(page, tmp_path, a_report(frames()))
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 2
    page.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert page.evaluate("getComputedStyle(document.getElementById('replay')).display") == "none"
    assert page.evaluate(COLOURS)[0][0] >= CONTRAST
    page.show(718, 1000, "light")  # an A4 page within the margins of the browser
    page.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert page.evaluate(LABELS) == [], "labels of charts that are cut, or too small to read"
    page.call("Emulation.setEmulatedMedia", media="", features=[])


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_replay_plays_to_its_end_and_shows_text_as_text(
    page: Page, tmp_path: Path, size: tuple[int, int]
) -> None:
    page.show(*size, "light", mobile=size == PHONE)
    opened(page, tmp_path, a_report(frames()))
    time = "document.getElementById('time').textContent"
    page.until(f"{time} === '0.0 s of 9.0 s'")
    assert HOSTILE in page.evaluate("document.getElementById('screen').textContent")
    page.evaluate("document.getElementById('play').click()")
    page.until(f"{time} === '9.0 s of 9.0 s'")
    page.until("document.getElementById('play').textContent === 'Play'")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.errors == []


def test_image_shows_one_frame_after_the_other(page: Page, tmp_path: Path) -> None:
    page.show(*DESKTOP, "light")
    opened(page, tmp_path, svg(film("one", "two"), 4, title="film"), "film.svg")
    moved = "new DOMMatrix(getComputedStyle(document.getElementById('film')).transform).f"
    animation = "document.getElementById('film').getAnimations()[0]"
    for at_ms, y in ((100, 0), (1_900, 0), (2_100, -34), (3_900, -34), (4_100, 0)):
        page.evaluate(f"{animation}.pause(); {animation}.currentTime = {at_ms}")
        assert page.evaluate(moved) == y
    assert page.errors == []
