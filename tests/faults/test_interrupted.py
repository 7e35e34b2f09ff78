"""Ctrl-C, a closed session, `kill` and `kill -9` at each stage leave nothing unreported."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator

import pytest

from tests.faults.command import Running, nothing_left, run, running, uid_of
from tests.local_cluster import separate_state

pytestmark = [pytest.mark.slow, pytest.mark.ray]

NAME = "cut"
DEMO = ("demo", "--headless", "--workers=1", "--seconds=1", f"--name={NAME}")
"""It kills the worker as soon as there is a checkpoint."""
UP = ("local", "up", NAME, "--workers=1")
WITHIN_S = 15.0


@pytest.fixture(autouse=True)
def state() -> Iterator[None]:
    with separate_state():
        yield


def interrupt(command: Running, number: signal.Signals, *, again: signal.Signals | None) -> None:
    """It ends with 130 soon, and leaves nothing; `again`: a second Ctrl-C during the deletion."""
    uid = uid_of(NAME)
    command.signal(number)
    if again is not None:
        for _ in range(3):
            time.sleep(0.1)  # spread over the take-down
            if command.process.poll() is None:
                command.signal(again)
    assert command.ends(WITHIN_S) == 130, command.lines
    nothing_left(NAME, uid)
    assert not [line for line in command.lines if "Traceback" in line], command.lines
    assert command.out == []


@pytest.mark.timed
@pytest.mark.parametrize(
    ("argv", "stage", "number", "again"),
    [
        (UP, "ray start", signal.SIGINT, signal.SIGINT),
        (DEMO, "Launched", signal.SIGTERM, signal.SIGINT),
        *(
            pytest.param(*stage, marks=pytest.mark.nightly)
            for stage in (
                (UP, "head-", signal.SIGTERM, None),
                (DEMO, "registered with Ray", signal.SIGHUP, signal.SIGTERM),
                (DEMO, "head-", signal.SIGINT, None),
                (DEMO, "attempt ended", signal.SIGINT, signal.SIGINT),
            )
        ),
    ],
)
def test_an_interrupt_takes_everything_down(
    argv: tuple[str, ...], stage: str, number: signal.Signals, again: signal.Signals | None
) -> None:
    with running(*argv) as command:
        command.saw(stage)
        interrupt(command, number, again=again)
    assert run("local", "status").out == "No local cluster.\n"


def test_remains_of_a_killed_start_are_listed_and_deleted() -> None:
    with running(*DEMO) as command:
        command.saw("head-")
        uid = uid_of(NAME)
        command.signal(signal.SIGKILL)
        assert command.ends(5) == -signal.SIGKILL
    _is_shown_and_taken_down(uid)


@pytest.mark.timed
def test_two_starts_of_a_name_are_one_cluster_and_outlive_their_killed_demo() -> None:
    with running(*DEMO) as one, running(*DEMO) as other:
        second, first = (one, other) if _ends_first(one, other) else (other, one)
        assert second.ends(WITHIN_S) == 1
        assert f"Local cluster {NAME} is" in second.lines[0]
        assert "left over" not in second.lines[0]
        assert len(second.lines) <= 3
        first.saw("Launched")
        uid = uid_of(NAME)
        first.signal(signal.SIGKILL)
        assert first.ends(5) == -signal.SIGKILL
    _is_shown_and_taken_down(uid)


def _is_shown_and_taken_down(uid: str) -> None:
    (left,) = json.loads(run("local", "status", "-o", "json").out)
    assert left["name"] == NAME
    assert left["health"] in ("starting", "ready")
    run(*DEMO).is_a_sentence(1, f"cockpit local down {NAME}")
    assert run("local", "down", "--yes").code == 0
    nothing_left(NAME, uid)
    assert run("local", "status").out == "No local cluster.\n"


def _ends_first(one: Running, other: Running) -> bool:
    """Whether the one is over, and not the other."""
    while one.process.poll() is None and other.process.poll() is None:
        time.sleep(0.02)
    return one.process.poll() is not None
