"""A replay as a terminal cast and as an animated image: complete, and text stays text."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from cockpit.report.animation import svg
from cockpit.report.cast import cast
from cockpit.report.replay import Frames, Look

SVG = "{http://www.w3.org/2000/svg}"
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


def film(*texts: str) -> Frames:
    """Frames of two lines; the first line is always the same."""
    own = list(dict.fromkeys(texts))
    lines = [(("head", 0, 4), ("      ", 1, 6)), *(((text, 1, 10),) for text in own)]
    looks = [Look("#ffffff", "#0000ff", bold=True), Look("#00ff00", "#101010", dim=True)]
    shown = [[[0, 1 + own.index(text)]] for text in texts]
    return Frames(10, [""], frames=shown, lines=lines, styles=looks)


def screen(events: list[tuple[float, str]], until_s: float) -> list[str]:
    """The text of a terminal of two lines that has received the events until then."""
    rows = ["", ""]
    at = 0
    for when_s, data in events:
        if when_s > until_s:
            break
        done = 0
        for found in (*ESCAPE.finditer(data), None):
            rows[at] += data[done : found.start() if found else None]
            if found is None:
                break
            done = found.end()
            if found[2] == "H":
                at = int(found[1].split(";")[0]) - 1
                rows[at] = ""
    return rows


def test_cast_shows_each_frame_at_its_time() -> None:
    header, *events = map(json.loads, cast(film("one", "two", "two"), 30, title="t").splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 10, 2)
    assert header["title"] == "t"
    assert [event[0] for event in events] == [0.0, 10.0, 30.0], "the third frame changes nothing"
    written = [(when_s, data) for when_s, _, data in events]
    assert screen(written, 5) == ["head      ", "one"]
    assert screen(written, 15) == ["head      ", "two"]
    assert "head" not in written[1][1], "only the line that differs is written"


def test_cast_has_the_colours_and_no_other_control_sequence() -> None:
    _, first, *_ = map(json.loads, cast(film("\x1b]0;title\x07ok\x1b[31m"), 10).splitlines())
    data = first[2]
    assert "\x1b[0;1;38;2;255;255;255;48;2;0;0;255mhead" in data
    assert "\x1b[0;2;38;2;0;255;0;48;2;16;16;16mok" in data
    assert "\x1b]" not in data
    assert "31m" not in data
    assert {found[2] for found in ESCAPE.finditer(data)} <= {"m", "H", "K", "J", "l"}


def test_image_moves_the_frames_through_the_window() -> None:
    text = svg(film("one", "two"), 40, title="a < b")
    root = ElementTree.fromstring(text)
    assert root.findtext(f"{SVG}title") == "a < b"
    uses = [
        (use.attrib["href"], float(use.attrib["y"]))
        for use in root.iter(f"{SVG}use")
    ]  # fmt: skip
    assert uses == [("#l0", 0.0), ("#l1", 17.0), ("#l0", 34.0), ("#l2", 51.0)]
    assert "animation:film 40s step-end infinite" in text
    assert "50.000%{transform:translateY(-34px)}" in text
    assert {text.text for text in root.iter(f"{SVG}text")} == {"head", "one", "two"}


@pytest.mark.parametrize("text", ["</svg><script>alert(1)</script>", '"&<', "日本 語"])
def test_image_holds_text_from_elsewhere_as_text(text: str) -> None:
    made = svg(film(text), 10, title=text)
    root = ElementTree.fromstring(made)
    shown = "".join(each.text or "" for each in root.iter(f"{SVG}text"))
    assert text.replace(" ", "") in shown.replace(" ", "")
    kinds = {each.tag.removeprefix(SVG) for each in root.iter()}
    assert kinds <= {"svg", "title", "style", "rect", "defs", "g", "use", "text"}
    assert "http" not in made.replace("http://www.w3.org/2000/svg", "")


def test_wide_characters_have_the_width_of_two_cells() -> None:
    root = ElementTree.fromstring(svg(film("日本 abcde"), 10))
    [wide, plain] = [each for each in root.iter(f"{SVG}text") if each.text != "head"]
    assert float(wide.attrib["textLength"]) == pytest.approx(4 * 8.4, abs=0.1)
    assert float(plain.attrib["x"]) == pytest.approx(5 * 8.4, abs=0.1)
