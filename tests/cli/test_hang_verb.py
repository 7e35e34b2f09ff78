"""`cockpit hang`: the verdict on the chosen run, as text and as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from cockpit.cli.options import connect
from cockpit.cli.read import hang
from cockpit.model.error import UsageError
from tests.insight.test_hang import dump, hung


@pytest.fixture(autouse=True)
def _session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose run `r` hangs because of rank 1."""
    waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]
    store = hung([dump(1, 0, 2, waits=False), *waiting])

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(store=store, clock=lambda: 101.0)

    monkeypatch.setattr(connect, "session", session)
    monkeypatch.setattr(connect, "wait_for", lambda *_: None)


def called(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    hang.arguments(parser, "hang")
    return hang.run(parser.parse_args(argv))


def test_text_has_the_sentence_and_the_stacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert called() == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Rank 1 never called all_reduce #3 of group default")
    assert "Rank 1 (cause, user code):" in shown
    assert "Ranks 0, 2, 3 (waiting):" in shown


def test_json_has_kind_ranks_and_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("r", "-o", "json", "--fail") == 1
    found = json.loads(capsys.readouterr().out)["verdict"]
    assert (found["kind"], found["ranks"], found["confidence"]) == ("user code", [1], "high")
    assert found["groups"][0]["missing"] == [1]


def test_unknown_run_is_an_error() -> None:
    with pytest.raises(UsageError, match="There is no run 'other'"):
        called("other")
