"""What the telemetry reports when Ray Train replaces only some replica groups. No cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.train.v2._internal.state import schema, state_manager

from training.telemetry.callback import TelemetryCallback, _list_without_uuids
from training.telemetry.head.outbox import ActorOutbox
from training.telemetry.ray_train import replicas
from training.telemetry.ray_train.checkpoint_size import Sizes
from training.telemetry.ray_train.lifecycle import Lifecycle
from training.telemetry.settings import FINAL_FLUSH_TIMEOUT_S, FLUSH_TIMEOUT_S
from training.telemetry.wire import (
    AttemptEnd,
    Body,
    Heal,
    Notice,
    Quorum,
    RanksReplaced,
    Run,
    Worker,
)


class Outbox:
    aggregator = "aggregator"

    def __init__(self) -> None:
        self.sent: list[Body] = []

    def send(self, t: float, body: Body) -> None:
        self.sent.append(body)

    def drain(self, timeout_s: float) -> None:
        pass

    def of(self, kind: type[Body]) -> list[Body]:
        return [body for body in self.sent if isinstance(body, kind)]


class WorkersFailed(Exception):
    """As Ray Train's WorkerGroupError."""

    def __init__(self, *ranks: int) -> None:
        super().__init__("failed")
        self.worker_failures: Mapping[int, Exception] = {
            rank: RuntimeError("out of luck") for rank in ranks
        }


def state(name: str, error: Exception | None = None) -> Any:
    """As Ray Train's TrainControllerState."""
    return SimpleNamespace(
        _state_type=SimpleNamespace(name=name, is_terminal=False),
        is_terminal=lambda: False,
        training_failed_error=error,
        scaling_decision=SimpleNamespace(num_workers=3, resources_per_worker={"CPU": 0.0}),
    )


@dataclass
class Started:
    """As Ray Train's Worker."""

    rank: int
    pid: int
    called: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def distributed_context(self) -> Any:
        return SimpleNamespace(world_rank=self.rank)

    @property
    def metadata(self) -> Any:
        return SimpleNamespace(node_id="n", node_ip="10.0.0.1", pid=self.pid, gpu_ids=())

    def execute_async(self, act: Callable[..., Any], *args: Any) -> None:
        self.called.append((act.__name__, *args))


@pytest.fixture
def outbox(monkeypatch: pytest.MonkeyPatch) -> Outbox:
    monkeypatch.setattr("training.telemetry.callback.ray.cluster_resources", lambda: {"CPU": 4.0})
    return Outbox()


@pytest.fixture
def callback(outbox: Outbox) -> TelemetryCallback:
    """Of a run with three replicas, in its first attempt."""
    made = TelemetryCallback()
    made._outbox = cast(ActorOutbox, outbox)
    made._lifecycle = Lifecycle("r", "digits", "01000000", "", outbox)
    made._has_replicas = True
    made._worker_group = SimpleNamespace(has_started=lambda: False)
    made._lifecycle.attempt_starts([Worker(rank=rank) for rank in range(3)])
    made._lifecycle.state("RUNNING")
    return made


def pass_through(callback: TelemetryCallback, *states: Any) -> None:
    for before, now in itertools.pairwise(states):
        callback.after_controller_state_update(before, now)


def test_attempt_and_run_go_on_while_a_lost_replica_is_replaced(
    callback: TelemetryCallback, outbox: Outbox
) -> None:
    before = list(outbox.sent)
    lost = state("RESTARTING", WorkersFailed(1))
    pass_through(callback, state("RUNNING"), lost, state("SCHEDULING"), state("RUNNING"))
    assert outbox.sent[len(before) :] == [
        Notice(
            run="r",
            attempt=1,
            rank=1,
            reason="ReplicaLost",
            message="RuntimeError: out of luck; the other replicas continue",
        )
    ]


def test_attempt_ends_when_all_replicas_are_lost(
    callback: TelemetryCallback, outbox: Outbox
) -> None:
    lost = state("RESTARTING", WorkersFailed(0, 1, 2))
    pass_through(callback, state("RUNNING"), lost)
    assert len(outbox.of(AttemptEnd)) == 1
    assert [body.state for body in outbox.sent if isinstance(body, Run)][-1] == "RESTARTING"


def test_attempt_ends_before_a_new_one_when_the_others_are_lost_during_a_replacement(
    callback: TelemetryCallback, outbox: Outbox
) -> None:
    lost = state("RESTARTING", WorkersFailed(1))
    pass_through(callback, state("RUNNING"), lost, state("SCHEDULING"))
    callback._begin_start()
    assert [body.reason for body in outbox.sent if isinstance(body, AttemptEnd)] == [
        "all replicas were lost"
    ]


def test_attempt_of_a_run_without_replicas_ends_with_any_rank(
    callback: TelemetryCallback, outbox: Outbox
) -> None:
    callback._has_replicas = False
    pass_through(callback, state("RUNNING"), state("RESTARTING", WorkersFailed(1)))
    assert len(outbox.of(AttemptEnd)) == 1


def test_slow_storage_delays_the_end_of_a_run_longer_than_a_restart(
    callback: TelemetryCallback,
) -> None:
    waited: list[float] = []
    callback._sizes = cast(Sizes, SimpleNamespace(drain=waited.append))
    callback._has_replicas = False
    pass_through(callback, state("RUNNING"), state("RESTARTING", WorkersFailed(1)))
    assert callback._lifecycle is not None
    callback._lifecycle.attempt_starts([Worker(rank=0)])
    ends = state("SHUTTING_DOWN")
    ends.next_state = state("FINISHED")
    ends.next_state._state_type.is_terminal = True
    pass_through(callback, state("RUNNING"), ends)
    assert waited == [FLUSH_TIMEOUT_S, FINAL_FLUSH_TIMEOUT_S]


def test_new_process_of_a_rank_reports_in_the_same_attempt(
    callback: TelemetryCallback, outbox: Outbox
) -> None:
    item = Started(1, 77)
    callback.after_replica_group_start(SimpleNamespace(get_workers=lambda: [item]))
    worker = Worker(rank=1, node_id="n", node_ip="10.0.0.1", pid=77)
    assert outbox.of(RanksReplaced) == [RanksReplaced(run="r", attempt=1, workers=(worker,))]
    assert item.called == [
        ("attach", "r", "01000000", 1, 1, (), "aggregator"),
        ("attach", "r", 1, 1, "aggregator"),
    ]


def test_quorum_is_reported_to_the_listener_only_while_there_is_one(
    callback: TelemetryCallback, outbox: Outbox
) -> None:
    assert callback._lifecycle is not None
    heals = (Heal(rank=1, source=0),)
    replicas.listen(callback._lifecycle.quorum)
    replicas.changed(2, 3, (0, 1, 2), 40, heals)
    replicas.listen(None)
    replicas.changed(3, 3, (0, 1), 41, ())
    assert outbox.of(Quorum) == [
        Quorum(run="r", attempt=1, number=2, replicas=3, members=(0, 1, 2), step=40, heals=heals)
    ]


def test_ray_train_lists_a_rank_whose_gpu_has_a_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_manager, "TrainWorker", schema.TrainWorker)
    given: dict[str, Any] = {
        "world_rank": 0, "local_rank": 0, "node_rank": 0, "actor_id": "a", "node_id": "n",
        "node_ip": "10.0.0.1", "pid": 7, "status": schema.ActorStatus.ALIVE,
        "resources": schema.TrainResources(resources={"GPU": 1}),
    }  # fmt: skip
    with pytest.raises(ValueError, match="valid integer"):  # otherwise the wrapper is not needed
        state_manager.TrainWorker(**given, gpu_ids=["GPU-7f"])
    _list_without_uuids()
    assert state_manager.TrainWorker(**given, gpu_ids=["GPU-7f"]).gpu_ids == []
    assert state_manager.TrainWorker(**given, gpu_ids=["1", 2]).gpu_ids == [1, 2]
