"""The pictures of the documentation: the film of a recording, and what the pages refer to."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cockpit.recorder.reading.player import Player
from cockpit.recorder.reading.recording import opened
from tests import pictures
from tests.recorder.test_recorder import record, script
from tests.tui.simulated import START_S

DOCS = Path(__file__).parents[2] / "docs"
DRAWN = [*DOCS.glob("*.svg"), *DOCS.glob("views/*.svg")]
LIMIT_BYTES = 3_000_000
"""Of all pictures of the documentation."""


def test_film_begins_before_the_kill_and_ends_after_the_recovery(tmp_path: Path) -> None:
    record(path := tmp_path / "run.cockpit", script(200))
    player = Player(opened(path), paused=True)
    kill_s = pictures.killed_s(player)
    assert kill_s == pytest.approx(START_S + 80, abs=1)
    moments = pictures.film_moments(player, 5)
    assert moments[0] == kill_s - pictures.BEFORE_FILM_S
    assert moments[-1] == kill_s + pictures.AFTER_FILM_S


async def test_view_of_a_recording_is_drawn_as_its_run_showed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(path := tmp_path / "run.cockpit", script(200))
    names = ("views/ranks", "views/rank")
    monkeypatch.setattr(pictures, "RECORDED", {name: pictures.RECORDED[name] for name in names})
    (tmp_path / "views").mkdir()
    await pictures.draw_recorded(path, tmp_path)
    table, page = ((tmp_path / f"{name}.svg").read_text() for name in names)
    assert "demo-workers-3" in table, "the replacement of the killed pod"
    assert "Rank" in page
    assert "recording" not in table


def test_cast_of_the_demo_plays_40_seconds() -> None:
    header, *events = map(json.loads, (DOCS / "demo.cast").read_text().splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, *pictures.FILM_SIZE)
    assert events[-1][0] == pictures.FILM_S
    assert [event[0] for event in events] == sorted(event[0] for event in events)
    shown = "".join(event[2] for event in events)
    assert "pod-kill" in shown
    assert "recovered in" in shown


def test_pages_refer_to_each_picture_and_pictures_are_small() -> None:
    assert {path.stem for path in DRAWN} == {
        *pictures.VIEWS, *pictures.LATER, pictures.FLEET, pictures.EXPERIMENTS,
        "drill", "overview", "demo",
    }  # fmt: skip
    pages = "".join(page.read_text() for page in (DOCS.parent / "README.md", *DOCS.glob("*.md")))
    assert not [path for path in DRAWN if f"{path.relative_to(DOCS)})" not in pages]
    assert sum(path.stat().st_size for path in (*DRAWN, DOCS / "demo.cast")) < LIMIT_BYTES


@pytest.mark.parametrize("path", DRAWN, ids=[path.stem for path in DRAWN])
def test_picture_is_xml_that_loads_nothing(path: Path) -> None:
    text = path.read_text()
    ElementTree.fromstring(text)
    assert "@font-face" not in text
    assert "<script" not in text
    assert "url(http" not in text
    assert "/tmp/" not in text or path.stem in ("jobs", "logs"), "no path of this computer"
