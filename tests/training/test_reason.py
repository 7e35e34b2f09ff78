"""Why an attempt ended: the cause, in one line, and not its victims."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError
from ray.train import ControllerError, WorkerGroupError
from ray.train.v2._internal.exceptions import (
    WorkerGroupStartupFailedError,
    WorkerHealthCheckFailedError,
    WorkerHealthCheckTimeoutError,
)

from training.telemetry.ray_train.end_reason import LIMIT, lacking, preempted, reason

KILLED = """The actor died unexpectedly before finishing this task.
\tclass_name: RayTrainWorker
\tpid: 12890
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR \
Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. \
There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer."""
NODE = "The actor died because its node has died. Node Id: 7f"
GLOO = "[../third_party/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:4711"


def died(text: str) -> ActorDiedError:
    error = ActorDiedError()
    error.error_msg = text
    return error


def unhealthy(text: str) -> WorkerHealthCheckFailedError:
    return WorkerHealthCheckFailedError("A worker health check failed.", died(text))


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        (
            {0: RuntimeError(GLOO), 1: unhealthy(KILLED)},
            "rank 1: its process died (killed, out of memory, or crashed)",
        ),
        ({0: RuntimeError(GLOO), 1: unhealthy(NODE)}, "rank 1: its node died"),
        ({1: unhealthy(NODE), 3: unhealthy(NODE)}, "ranks 1, 3: its node died"),
        (
            {0: RuntimeError(GLOO), 2: ValueError("a bad batch\nand more")},
            "rank 2: ValueError: a bad batch",
        ),
        (
            {0: RuntimeError(f"{GLOO}. This is typically caused by a remote worker hanging up")},
            "rank 0: lost a peer: Connection closed by peer [10.0.0.1]:4711",
        ),
    ],
)
def test_the_cause_is_named_and_not_its_victims(
    failures: dict[int, Exception], expected: str
) -> None:
    assert reason(WorkerGroupError("long\ntext", failures)) == expected


def test_a_death_that_was_found_later_explains_the_first_victim() -> None:
    error = WorkerGroupError("", {0: RuntimeError(GLOO)})
    assert reason(error, {1: died(NODE)}) == "rank 1: its node died"


def test_death_of_a_rank_that_did_not_answer_is_not_the_cause() -> None:
    hanging = "A worker health check has been hanging for 12.1 seconds. Marking the worker as dead."
    error = WorkerGroupError("", {0: RuntimeError(GLOO), 1: WorkerHealthCheckTimeoutError(hanging)})
    assert reason(error, {1: died("The actor died unexpectedly before finishing this task.")}) == (
        f"rank 1: WorkerHealthCheckTimeoutError: {hanging}"
    )


def test_a_group_that_did_not_start_reports_why() -> None:
    error = WorkerGroupStartupFailedError("One of the worker actors failed to initialize.")
    error.__cause__ = died(NODE)
    assert reason(ControllerError(error)) == "the worker group did not start: its node died"


def test_a_preemption_names_its_ranks() -> None:
    class Info:
        preempted_ranks = (2, 0)

    assert preempted(Info()) == "preempted: the node of ranks 0, 2 is reclaimed"


def test_any_error_is_one_line_of_bounded_length() -> None:
    line = reason(RuntimeError("x" * 10_000 + "\n" * 5))
    assert len(line) == LIMIT
    assert "\n" not in line
    assert reason(None) == ""
    assert reason(KeyError()) == "KeyError"


def test_missing_resources_are_named_and_available_ones_are_not() -> None:
    there = {"CPU": 1.0, "memory": 1e9}
    assert lacking(1, {"CPU": 1}, there) == ""
    assert lacking(2, {"CPU": 1}, there) == (
        "waits for resources: 2 workers need 2 CPU and the cluster has 1"
    )
    assert lacking(1, {"CPU": 1, "GPU": 0.5}, there) == (
        "waits for resources: 1 worker needs 0.5 GPU and the cluster has 0"
    )
