"""`cockpit hang`: the verdict on the chosen run, as text and as JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from cockpit.actions.cluster import ClusterActions
from cockpit.cli.options import connect
from cockpit.cli.read import hang
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import NotAllowedError, UnreachableError, UsageError
from cockpit.model.event import SourceHealth
from cockpit.model.run import Placement
from cockpit.sources.ray.profiling import Process
from cockpit.store.store import Store
from tests.insight.test_hang import dump, hung


@pytest.fixture(autouse=True)
def _session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose run `r` hangs because of rank 1."""
    waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]
    store = hung([dump(1, 0, 2, waits=False), *waiting])

    follow(monkeypatch, store)


def follow(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        backend = SimpleNamespace(ref=ClusterRef("local", "demo"))
        yield SimpleNamespace(store=store, clock=lambda: 101.0, call=asyncio.run, backend=backend)

    monkeypatch.setattr(connect, "session", session)
    monkeypatch.setattr(connect, "wait_for", lambda *_: None)


def called(*argv: str, read_only: bool = False) -> int:
    parser = argparse.ArgumentParser()
    parser.set_defaults(verb="hang", read_only=read_only)
    hang.arguments(parser, "hang")
    return hang.run(parser.parse_args(argv))


@dataclass
class Tools:
    """py-spy, which cannot inspect the process 2."""

    asked: list[Process] = field(default_factory=list)

    async def stack(self, process: Process) -> str:
        self.asked.append(process)
        if process.pid == 2:
            raise NotAllowedError("This cluster does not allow stacks.", "They are disabled.")
        return f"Process {process.pid}\n  save (torch/serialization.py:1)\n"


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Ranks 1 and 2 are frozen; rank 3 makes progress."""
    store = hung([dump(0, 1, 3, waits=True)], stale=(1, 2))
    places = tuple(Placement(rank, "", f"10.0.0.{rank}", rank) for rank in (3, 2, 1, 0))
    store.runs["r"].attempts[1].placements = places
    made = Tools()
    follow(monkeypatch, store)
    monkeypatch.setattr(ClusterActions, "on", lambda _: made)
    return made


def test_stacks_are_taken_of_the_ranks_that_sent_none_on_request(
    tools: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called() == 0
    assert tools.asked == []
    assert called("--stacks") == 0
    shown = capsys.readouterr().out
    assert [process.pid for process in tools.asked] == [1, 2, 3]
    assert (
        "Rank 1 (no dump), process 1 on 10.0.0.1, by py-spy:\n"
        "    Process 1\n"
        "      save (torch/serialization.py:1)\n"
    ) in shown
    assert "by py-spy:\n    This cluster does not allow stacks. They are disabled.\n" in shown


def test_json_has_the_stacks_that_were_taken_and_why_others_are_missing(
    tools: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    called("-o", "json")
    assert "stacks" not in json.loads(capsys.readouterr().out)
    called("--stacks", "-o", "json")
    first, second, _ = json.loads(capsys.readouterr().out)["stacks"]
    assert (first["rank"], first["error"]) == (1, "")
    assert (second["stack"], second["rank"]) == (None, 2)
    assert second["error"].startswith("This cluster does not allow stacks.")


def test_stacks_are_refused_in_read_only_mode(tools: Tools) -> None:
    with pytest.raises(NotAllowedError, match="pauses the processes"):
        called("--stacks", read_only=True)
    assert tools.asked == []
    assert called(read_only=True) == 0


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


def test_no_run_is_an_error_while_a_source_has_not_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store()
    follow(monkeypatch, store)
    store.apply(SourceHealth(at_s=100.0, source="ray", ok=True))
    for argv in ((), ("r",)):
        with pytest.raises(
            UnreachableError, match="telemetry source of local:demo does not answer"
        ):
            called(*argv)
    store.apply(SourceHealth(at_s=100.0, source="telemetry", ok=True))
    assert called() == 0
    assert capsys.readouterr().out == "No training run.\n"


def test_unknown_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    store = hung([dump(1, 0, 2, waits=False)])
    for source in hang.SOURCES:
        store.apply(SourceHealth(at_s=100.0, source=source, ok=True))
    follow(monkeypatch, store)
    with pytest.raises(UsageError, match="There is no run 'other'"):
        called("other")
