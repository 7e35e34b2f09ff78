"""Links in tables (OSC 8): on a terminal that may show them, and nowhere else."""

from __future__ import annotations

import io

import pytest

from cockpit.cli.output import links
from cockpit.cli.output.streams import Gated
from cockpit.cli.output.tables import print_table

URL = "https://mlflow.test/#/runs/a1"
TERMINAL = {"TERM": "xterm-256color"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def table(
    monkeypatch: pytest.MonkeyPatch, file: io.StringIO, url: str, environment: dict[str, str]
) -> str:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    rows = [{"name": "base", "loss": 0.5, "url": url}, {"name": "other", "loss": 1.5, "url": ""}]
    print_table(rows, ("name", "loss"), Gated(file))  # type: ignore[arg-type]
    return file.getvalue()


def test_first_column_links_to_the_page_without_moving_the_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert table(monkeypatch, Terminal(), URL, TERMINAL).splitlines() == [
        "NAME   LOSS",
        f"\x1b]8;;{URL}\x1b\\base\x1b]8;;\x1b\\    0.5",
        "other   1.5",
    ]


@pytest.mark.parametrize(
    "environment",
    [TERMINAL | {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": "linux"}, {}],
)
def test_plain_terminal_gets_no_link(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    assert "\x1b" not in table(monkeypatch, Terminal(), URL, environment)


def test_pipe_gets_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    assert table(monkeypatch, io.StringIO(), URL, TERMINAL).splitlines()[1] == "base    0.5"


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://a\x1b\\\x1b]0;x\x07", "https://a b", "https://ü", ""]
)
def test_url_that_is_no_plain_link_is_left_out(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    assert "\x1b" not in table(monkeypatch, Terminal(), url, TERMINAL)


def test_control_characters_of_a_label_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    file = Terminal()
    links.write("a\x1b]0;owned\x07b", URL, Gated(file))  # type: ignore[arg-type]
    assert file.getvalue() == f"\x1b]8;;{URL}\x1b\\ab\x1b]8;;\x1b\\"
