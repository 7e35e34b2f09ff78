"""The messages to an agent about ranks that end and are restarted."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest
import torch

from tests.drills.script import eventually
from training.loop.world import World
from training.stop import Stop
from training.telemetry.ray_train.end_reason import DIED
from training.telemetry.wire import Hang, Steps, Worker
from training.telemetry.worker import relay
from training.telemetry.worker.relay import (
    AttemptStarted,
    Ended,
    Hello,
    RankAssignment,
    Relay,
    RelayClient,
)
from training.telemetry.worker.without_ray import rank_telemetry


class Slow:
    """A sink whose record is pending until it is released."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.sent: list[Steps] = []

    def busy(self) -> bool:
        return False

    def send(self, record: Steps) -> None:
        self.sent.append(record)

    def send_hang(self, record: Hang) -> None:
        return

    def drain(self, timeout_s: float) -> None:
        self.arrived.wait(timeout_s)


@pytest.fixture
def sink() -> Slow:
    return Slow()


@pytest.fixture
def agent(sink: Slow) -> Iterator[Relay]:
    numbers = iter(range(1, 9))

    def seat(message: Hello) -> Worker:
        return Worker(
            rank=message.rank, node_id="n", node_ip="127.0.0.1", pid=message.pid, gpu_ids=()
        )

    agent = Relay("run", seat, lambda: next(numbers), lambda: sink, None)
    yield agent
    sink.arrived.set()
    agent.close()


def begun(agent: Relay, rank: int) -> RelayClient:
    line = RelayClient(agent.address)
    assert isinstance(line.request(Hello(rank, 0, 100 + rank)), RankAssignment)
    return line


def steps(number: int) -> Steps:
    return Steps(rank=3, attempt=1, t=0.0, step=number, first_step=number, steps_total=number)


def events(agent: Relay) -> list[object]:
    return [message for _, message in agent.take()]


def test_a_rank_reports_once_how_it_ended(agent: Relay, sink: Slow) -> None:
    sink.arrived.set()
    line = begun(agent, 3)
    line.send_message(Ended(3, "ValueError: no"))
    line.close()
    eventually(lambda: not agent._seated)
    line = begun(agent, 3)
    assert line.request(AttemptStarted(())) == 1
    line.close()
    eventually(lambda: not agent._seated)
    message = events(agent)
    assert message == [
        Ended(3, "ValueError: no", 103),
        AttemptStarted((), 1),
        Ended(3, DIED, 103),
    ]


def test_a_death_is_received_before_the_next_begins_though_its_records_are_under_way(
    agent: Relay, sink: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ARRIVE_S", 0.2)
    line = begun(agent, 3)
    for number in range(1, 50):
        line.send_message(steps(number))
    line.send_message(Ended(3, "too late to be heard"))
    line.close()
    again = begun(agent, 3)
    assert again.request(AttemptStarted(())) == 1
    assert events(agent) == [Ended(3, DIED, 103), AttemptStarted((), 1)]
    sink.arrived.set()
    again.send_message(Ended(3, ""))
    again.close()
    eventually(lambda: not agent._seated)
    assert events(agent) == [Ended(3, "", 103)]
    eventually(lambda: len(sink.sent) == 49)


def test_a_rank_that_stops_itself_has_not_failed(
    agent: Relay, sink: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver would report a restart, and count a failure."""
    sink.arrived.set()
    monkeypatch.setenv(relay.VARIABLE, agent.address)
    with pytest.raises(Stop), rank_telemetry(World(0, 1, 0, torch.device("cpu"))):
        raise Stop("there is no data")
    eventually(lambda: not agent._seated)
    (began, ended) = events(agent)
    assert isinstance(began, AttemptStarted)
    assert ended == Ended(0, "", os.getpid())


def test_an_agent_that_had_too_many_open_files_accepts_the_next_rank(
    agent: Relay, sink: Slow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink.arrived.set()
    monkeypatch.setattr(relay, "FULL_S", 0.01)
    accept, failed = agent._listener.accept, threading.Event()

    def full() -> Connection:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return accept()

    begun(agent, 2).close()  # the thread waits for the next one in the listener's own method
    monkeypatch.setattr(agent._listener, "accept", full)
    begun(agent, 3).close()
    assert failed.wait(10)
    line = RelayClient(agent.address)
    line.send_message(Hello(4, 0, 104))  # type: ignore[arg-type]
    assert line._connection.poll(10), "it is answered"
    line.close()


def test_a_rank_that_dies_before_it_is_answered_has_ended(agent: Relay, sink: Slow) -> None:
    sink.arrived.set()
    seat, is_gone = agent._seat, threading.Event()

    def late(message: Hello) -> Worker:
        is_gone.wait(10)
        return seat(message)

    agent._seat = late
    line = RelayClient(agent.address)
    line.send_message(Hello(3, 0, 103))  # type: ignore[arg-type]
    eventually(lambda: bool(agent._seated))
    line.close()
    is_gone.set()
    eventually(lambda: not agent._seated)
    assert events(agent) == [Ended(3, DIED, 103)]
