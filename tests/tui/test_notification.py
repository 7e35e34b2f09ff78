"""Notifications of the desktop through the terminal."""

from __future__ import annotations

from typing import cast

import pytest
from textual.driver import Driver

from cockpit.tui.app_base import AppBase
from cockpit.tui.terminal.notification import clipboard, notification, window_title


def test_notification_is_one_sequence_without_control_characters_of_the_text() -> None:
    text = "rank 3 is slow\n\x1b]0;owned\x07"
    sequence = notification(text, {"TERM": "xterm-kitty"})
    assert sequence.startswith("\x1b]9;cockpit: rank 3 is slow")
    assert sequence.endswith("\x07")
    assert not {char for char in sequence[1:-1] if ord(char) < 32}


@pytest.mark.parametrize(
    "environment",
    [
        {"TERM": "foot"},
        {"TERM": "rxvt-unicode-256color"},
        {"TERM": "xterm-256color", "VTE_VERSION": "7600"},
    ],
)
def test_terminal_with_titles_gets_one_notification_with_a_title(
    environment: dict[str, str],
) -> None:
    assert notification("slow; very", environment) == "\x1b]777;notify;cockpit;slow; very\x07"


def test_tmux_passes_the_sequence_on() -> None:
    sequence = notification("slow", {"TERM": "tmux-256color", "TMUX": "/tmp/tmux,1,0"})
    assert sequence == "\x1bPtmux;\x1b\x1b]9;cockpit: slow\x07\x1b\\"


@pytest.mark.parametrize("term", ["linux", "dumb"])
def test_terminal_that_may_print_it_gets_none(term: str) -> None:
    assert notification("slow", {"TERM": term}) == ""
    assert window_title("cockpit", {"TERM": term}) == ""


def test_title_is_one_sequence_without_control_characters_of_the_text() -> None:
    sequence = window_title("llm\x1b]0;owned\x07 · ready", {"TERM": "tmux-256color", "TMUX": "x"})
    assert sequence.startswith("\x1b]2;llm")
    assert not {char for char in sequence[1:-1] if ord(char) < 32}


def test_copy_is_sent_around_tmux_too() -> None:
    assert clipboard("rank", {"TERM": "xterm"}) == ""
    assert clipboard("rank", {"TMUX": "x"}) == "\x1bPtmux;\x1b\x1b]52;c;cmFuaw==\x07\x1b\\"


def test_ring_writes_the_notification_after_the_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Terminal:
        is_headless = False

        def write(self, data: str) -> None:
            written.append(data)

    app = AppBase()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("TMUX", raising=False)
    app._driver = cast(Driver, Terminal())
    app.ring("a drill passed")
    assert written == ["\x07", "\x1b]9;cockpit: a drill passed\x07"]
