"""The pictures of the UI: one of them is drawn, and every view has one."""

from __future__ import annotations

from cockpit.tui.keys import VIEWS
from tests.tui import pictures


async def test_picture_has_the_size_and_the_data() -> None:
    [(svg, text)] = await pictures.draw(pictures.PICTURES["pods"], "ascii", [(80, 24)])
    assert "llm-train-head" in text
    assert text.isascii()
    assert len(text.splitlines()) == 24
    assert svg.startswith("<svg")


def test_every_view_has_a_picture() -> None:
    assert set(VIEWS) <= set(pictures.PICTURES)
