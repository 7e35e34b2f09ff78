"""When an elastic run grows, with Ray's own scaling policy; the whole is in
tests/backends/test_fast_recovery.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("ray")

from ray.train import ScalingConfig
from ray.train.v2._internal.execution.scaling_policy import (
    NoopDecision,
    ResizeDecision,
)
from ray.train.v2._internal.execution.scaling_policy.elastic import (
    ElasticScalingPolicy,
)
from ray.train.v2._internal.execution.worker_group.state import WorkerGroupState
from ray.train.v2._internal.util import time_monotonic

from training.recovery import growth as subject
from training.recovery.growth import DECISION, Growth, grow
from training.recovery.nodes import Node
from training.recovery.settings import CHECK_EVERY_S, SPARES_S

CPU = {"CPU": 1.0}


@dataclass
class Cluster:
    ids: list[str] = field(default_factory=lambda: ["a"])
    lacking: set[str] = field(default_factory=set)
    """Nodes whose spares have not started."""
    in_memory: bool = False
    now_s: float = 0.0
    refreshed: int = 0
    asked: int = 0
    """How often whether the run has checkpoints in memory."""

    def alive(self) -> list[Node]:
        return [Node(name, "127.0.0.1", 1, CPU) for name in self.ids]

    def growth(self, most: int = 2) -> Growth:
        return Growth(
            most, CPU, self.alive, self.lacking.__contains__, self.is_in_memory, lambda: self.now_s
        )

    def is_in_memory(self) -> bool:
        self.asked += 1
        return self.in_memory

    def refresh(self) -> None:
        self.refreshed += 1

    def join(self, node: str) -> None:
        self.ids.append(node)
        self.now_s += CHECK_EVERY_S


def test_run_grows_after_the_first_checkpoint_since_a_node_has_joined() -> None:
    cluster = Cluster()
    growth = cluster.growth()
    growth.saved()
    assert not growth.is_due(1), "there is no room"
    cluster.join("b")
    assert not growth.is_due(1), "the newest checkpoint is of before"
    growth.saved()
    assert growth.is_due(1)


def test_run_with_checkpoints_in_memory_grows_at_once() -> None:
    cluster = Cluster(in_memory=True)
    growth = cluster.growth()
    assert not growth.is_due(1)
    cluster.join("b")
    assert growth.is_due(1)


def test_run_grows_when_the_new_node_has_a_spare() -> None:
    cluster = Cluster(in_memory=True, lacking={"b"})
    growth = cluster.growth()
    assert not growth.is_due(1)
    cluster.join("b")
    assert not growth.is_due(1), "all ranks would wait for imports there"
    cluster.now_s += SPARES_S / 2
    assert not growth.is_due(1)
    cluster.lacking.clear()
    assert growth.is_due(1)


def test_run_grows_after_the_first_checkpoint_since_the_spares_are_there() -> None:
    cluster = Cluster(lacking={"b"})
    growth = cluster.growth()
    assert not growth.is_due(1)
    cluster.join("b")
    growth.saved()
    assert not growth.is_due(1)
    cluster.lacking.clear()
    assert not growth.is_due(1), "steps since that checkpoint would be lost"
    growth.saved()
    assert growth.is_due(1)


def test_run_grows_without_a_spare_if_it_takes_too_long() -> None:
    cluster = Cluster(lacking={"b", "c"})
    growth = cluster.growth(most=3)
    growth.saved()
    assert not growth.is_due(1)
    cluster.join("b")
    assert not growth.is_due(1)
    cluster.now_s += SPARES_S + 1.0
    assert not growth.is_due(1), "the checkpoint is of before the node"
    cluster.join("c")
    growth.saved()
    assert growth.is_due(1), "the first node has waited long enough"


def test_run_that_has_grown_and_shrunk_waits_for_spares_again() -> None:
    cluster = Cluster(lacking={"b", "c"})
    growth = cluster.growth()
    cluster.join("b")
    assert not growth.is_due(1)
    cluster.now_s += SPARES_S + 1.0
    assert not growth.is_due(2), "Ray itself has compared it with the nodes"
    cluster.ids.remove("b")
    cluster.join("c")
    growth.saved()
    assert not growth.is_due(1)


@pytest.mark.parametrize("has_spare", [False, True])
def test_checkpoint_before_the_spares_counts_if_no_other_comes_in_time(has_spare: bool) -> None:
    cluster = Cluster(lacking={"b"})
    growth = cluster.growth()
    cluster.join("b")
    growth.saved()
    assert not growth.is_due(1)
    if has_spare:
        cluster.lacking.clear()
    cluster.now_s += SPARES_S - 1.0
    assert not growth.is_due(1)
    cluster.now_s += 2.0
    assert growth.is_due(1)


def test_checkpoints_in_memory_are_looked_for_every_two_seconds_while_there_is_room() -> None:
    cluster = Cluster()
    growth = cluster.growth()
    assert not growth.is_due(1)
    assert cluster.asked == 0, "there is no room"
    cluster.join("b")
    for _ in range(100):  # the loop of the controller
        assert not growth.is_due(1)
    assert cluster.asked == 1
    cluster.in_memory = True
    cluster.now_s += CHECK_EVERY_S
    assert growth.is_due(1)
    assert cluster.asked == 2


def test_run_is_compared_once_with_the_same_nodes() -> None:
    cluster = Cluster(["a", "b"], in_memory=True)
    growth = cluster.growth(most=3)
    assert growth.is_due(1)
    cluster.now_s += CHECK_EVERY_S
    assert not growth.is_due(1), "another run uses the second node"
    cluster.join("c")
    assert growth.is_due(1)


def test_run_of_full_size_is_not_compared() -> None:
    cluster = Cluster(["a", "b", "c"], in_memory=True)
    assert not cluster.growth(most=2).is_due(2)


def test_nodes_are_listed_every_two_seconds() -> None:
    cluster = Cluster(in_memory=True)
    growth = cluster.growth()
    assert not growth.is_due(1)
    cluster.ids.append("b")
    assert not growth.is_due(1)
    cluster.now_s += CHECK_EVERY_S
    assert growth.is_due(1)


@pytest.fixture
def policy() -> Iterator[ElasticScalingPolicy]:
    """Of Ray, for a run whose cluster has room for two ranks."""
    before = getattr(ElasticScalingPolicy, DECISION)
    found = {"a": CPU, "b": CPU}
    with (
        patch.object(ElasticScalingPolicy, "_maybe_send_resource_request", lambda self: None),
        patch.object(ElasticScalingPolicy, "_get_reserved_resources", lambda self: found),
    ):
        yield ElasticScalingPolicy(ScalingConfig(num_workers=(1, 2)))
    setattr(ElasticScalingPolicy, DECISION, before)


def decision(policy: ElasticScalingPolicy) -> Any:
    workers: list[Any] = [object()]
    started: Any = WorkerGroupState(time_monotonic(), None, workers, None)
    return policy.make_decision_for_running_worker_group(started, None)


def test_policy_of_ray_decides_at_once_when_growth_is_due(policy: ElasticScalingPolicy) -> None:
    cluster = Cluster()
    growth = cluster.growth()
    grow(growth, cluster.refresh)
    assert isinstance(decision(policy), NoopDecision), "Ray waits for 60 s"
    cluster.join("b")
    growth.saved()
    resized = decision(policy)
    assert isinstance(resized, ResizeDecision)
    assert (resized.num_workers, cluster.refreshed) == (2, 1)


def test_policy_of_ray_decides_as_before_if_the_nodes_cannot_be_listed(
    policy: ElasticScalingPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    def alive() -> list[Node]:
        raise ConnectionError("the GCS does not answer")

    grow(Growth(2, CPU, alive, lambda node: False, lambda: True), lambda: None)
    assert isinstance(decision(policy), NoopDecision)
    assert "at the next check of Ray's" in caplog.text


def test_policy_is_patched_once(policy: ElasticScalingPolicy) -> None:
    cluster = Cluster()
    for _ in range(2):
        grow(cluster.growth(), cluster.refresh)
    patched = getattr(ElasticScalingPolicy, subject.DECISION)
    assert not hasattr(patched.__wrapped__, "__wrapped__")
