"""No control sequence from a cluster reaches the terminal, by any verb, stream or error."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence

import pytest

from cockpit.actions.cluster import ClusterActions
from cockpit.backends.protocol import Terminal
from cockpit.cli import main as cli
from cockpit.cli.change import exec as exec_verb
from cockpit.cli.output import streams
from cockpit.cli.output.tables import print_rows
from cockpit.model.error import CockpitError
from tests.simulated_backend import ScriptedBackend
from tests.sources.fake_dashboard import FakeDashboard, node

TITLE = "\x1b]0;owned\x07"
HOSTILE = f"{TITLE}\x1b[2J\x9b31m\x9d52;c;aGk=\x9c\x7f\u202e\u2066\r"


def dangerous(text: str) -> list[str]:
    return [sign for sign in text if not sign.isprintable() and sign not in "\n\t"]


@pytest.fixture(scope="module")
def hostile() -> Iterator[FakeDashboard]:
    """A dashboard whose ids, addresses and messages hold control sequences."""
    fake = FakeDashboard()
    fake.add_job(f"a{HOSTILE}b\nc", ray_id=f"01{HOSTILE}")
    fake.jobs[0] |= {
        "metadata": {f"owner{HOSTILE}": f"jane{HOSTILE}"},
        "message": f"one{HOSTILE}\ntwo",
        "driver_node_id": HOSTILE,
        "entrypoint": f"python train.py {HOSTILE}",
    }
    seen = node()
    seen["raylet"] |= {
        "nodeManagerAddress": f"10.0.0.1{HOSTILE}",
        "nodeManagerHostname": f"vm{HOSTILE}",
        "stateMessage": HOSTILE,
        "resourcesTotal": {f"disk{HOSTILE}": 1.0},
    }
    seen["gpus"][0]["name"] = f"H100{HOSTILE}"
    fake.nodes = [seen]
    up, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with fake.serve():
            up.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert up.wait(10)
    yield fake
    loop.call_soon_threadsafe(over.set)
    thread.join(10)


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("verb", ["jobs", "nodes", "status", "pods"])
def test_verbs_print_no_control_sequence(
    verb: str, output: str, hostile: FakeDashboard, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["--address", hostile.route.base_url, verb, "-o", output])
    text = capsys.readouterr()
    assert not dangerous(text.out + text.err)
    assert code == 0, text.err
    if output == "json":
        assert json.loads(text.out)
    elif verb == "jobs":
        assert "a b c" in text.out
        assert len(text.out.splitlines()) == 2, "a line end in an id is no new row"


def test_errors_print_no_control_sequence(
    hostile: FakeDashboard, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list of jobs is part of this error."""
    assert cli.main(["--address", hostile.route.base_url, "logs", f"no{TITLE}pe"]) == 2
    assert cli.main([f"{TITLE}jobs"]) == 2
    assert cli.main(["jobs", f"--{TITLE}"]) == 2
    text = capsys.readouterr().err
    assert "Jobs: a b c" in text
    assert not dangerous(text)


def test_the_gate_keeps_newlines_and_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    streams.prepare()
    print(f"a\tb\r\n{HOSTILE}c", "ünïcode → 日本", file=sys.stdout)
    sys.stderr.writelines(["x\x1b[31my\n", "\x1b", "]0;title"])
    text = capsys.readouterr()
    assert text.out == "a\tb\nc ünïcode → 日本\n"
    assert text.err == "xy\n]0;title"


def test_prepare_gates_each_stream_once() -> None:
    streams.prepare()
    first = sys.stdout
    streams.prepare()
    assert sys.stdout is first


def test_a_cell_is_one_clean_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": f"a{HOSTILE}\nFAKE  ROW", "n": [f"x{HOSTILE}", "y"]}]
    print_rows(rows, ("name", "n"), "table")
    title, row = capsys.readouterr().out.splitlines()
    assert title == "NAME        N"
    assert row == "a FAKE ROW  x ,y"


def test_an_error_has_a_line_for_each_sentence() -> None:
    error = CockpitError("Job a\nb failed", "why\n\nnot", "see\nthis")
    assert str(error).splitlines() == ["Job a b failed.", "why  not.", "see this"]


class Writing:
    """A command in a pod that writes these parts, in place of `protocol.Terminal`."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    async def output(self) -> AsyncGenerator[bytes, None]:
        for part in self._parts:
            yield part

    async def write(self, data: bytes) -> None:
        """Its input is not read."""

    async def close_input(self) -> None:
        """Its input is not read."""

    async def resize(self, rows: int, columns: int) -> None:
        """It has no size."""

    async def wait(self) -> int:
        return 0

    async def aclose(self) -> None:
        """It has ended."""


class Attaching(ClusterActions):
    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        return Writing(b"a\x1b", b"[2Jb \xe2\x82", b"\xac\t", f"{HOSTILE}c\n".encode())


@pytest.mark.parametrize("on_terminal", [True, False])
async def test_exec_with_input_writes_control_sequences_to_files_only(
    on_terminal: bool, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def no_input(terminal: Terminal) -> None:
        """Standard input has ended."""

    monkeypatch.setattr(exec_verb, "_feed", no_input)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: on_terminal, raising=False)
    assert await exec_verb._piped(Attaching(ScriptedBackend()), "pod", ["cat"]) == 0
    written = capfdbinary.readouterr().out.decode()
    assert written.startswith("a")
    assert "€\t" in written
    assert written.endswith("c\n")
    assert bool(dangerous(written)) is not on_terminal
