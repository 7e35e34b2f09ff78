"""docs/drills.md has the faults, the probes and the game days that there are."""

from __future__ import annotations

import re

import pytest

from cockpit.drills.gamedays.file import DEFAULT_KEYS, FAULT_KEYS, KEYS, parsed
from tests.drills.faults_table import PAGE, tables
from tests.page import between


@pytest.mark.parametrize("name", list(tables()))
def test_a_table_of_the_page_is_what_the_code_has(name: str) -> None:
    found = between(PAGE.read_text(encoding="utf-8"), name)
    assert found == tables()[name], "python -m tests.drills.faults_table writes it"


def test_the_file_that_the_page_shows_is_a_game_day() -> None:
    shown = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    for text in shown:
        assert parsed(text, "drills.md", "shown").steps


def test_every_key_of_a_file_is_documented() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    keys = {key for of in KEYS.values() for key in of} | {*FAULT_KEYS, *DEFAULT_KEYS}
    assert keys <= named
