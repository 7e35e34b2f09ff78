"""The events of the agents of a job on the cluster, while one of the agents is stalled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from ray.exceptions import RayError

from training.jobs import on_cluster


@dataclass(eq=False)
class Call:
    agent: FakeAgent
    answer: list[str] | RayError | None = None


@dataclass
class FakeAgent:
    """It answers calls in their order, as an actor does, unless it is stalled."""

    events: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    is_stalled: bool = False
    is_lost: bool = False

    @property
    def take_events(self) -> Any:
        return SimpleNamespace(remote=self._asked)

    def _asked(self) -> Call:
        self.calls.append(Call(self))
        return self.calls[-1]

    def answer(self) -> None:
        for call in self.calls if not self.is_stalled else ():
            if call.answer is None:
                call.answer = RayError("lost") if self.is_lost else self.events
                self.events = []


def wait(calls: Sequence[Call], *, num_returns: int, timeout: float) -> tuple[list[Call], Any]:
    assert num_returns == len(calls)
    for call in calls:
        call.agent.answer()
    return [call for call in calls if call.answer is not None], None


def get(call: Call) -> list[str]:
    if isinstance(call.answer, RayError):
        raise call.answer
    assert call.answer is not None
    return call.answer


@pytest.fixture(autouse=True)
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_cluster, "ray", SimpleNamespace(wait=wait, get=get))


def test_events_of_a_stalled_agent_arrive_when_it_continues() -> None:
    one, two = FakeAgent(["a"]), FakeAgent(["b"], is_stalled=True)
    events: Any = on_cluster.AgentEvents([one, two])
    assert events.take(0.0) == ["a"]
    one.events, two.is_stalled = ["c"], False
    assert sorted(map(str, events.take(0.0))) == ["b", "c"]
    two.events = ["d"]
    assert events.take(0.0) == ["d"]


def test_stalled_agent_has_one_call_at_a_time() -> None:
    stalled = FakeAgent(["a"], is_stalled=True)
    events: Any = on_cluster.AgentEvents([stalled])
    for _ in range(5):
        assert events.take(0.0) == []
    assert len(stalled.calls) == 1


def test_lost_agent_holds_no_other_up() -> None:
    lost, other = FakeAgent(is_lost=True), FakeAgent(["a"])
    events: Any = on_cluster.AgentEvents([lost, other])
    assert events.take(0.0) == ["a"]
    other.events = ["b"]
    assert events.take(0.0) == ["b"]
