"""The budget against which a failure counts, compared with Ray's policy and errors."""

from __future__ import annotations

import pytest

from training.telemetry.ray_train.failure_budget import CONTROLLER, FAILURES, PREEMPTIONS, charged

ray = pytest.importorskip("ray")


def _errors() -> dict[str, BaseException]:
    from ray.exceptions import RayActorError
    from ray.train.v2._internal.exceptions import (
        WorkerGroupStartupTimeoutError,
        WorkerHealthCheckFailedError,
    )
    from ray.train.v2.api.exceptions import ControllerError, PreemptionError, WorkerGroupError

    class Info:
        preempted_ranks = (1,)

        def __str__(self) -> str:
            return "rank 1"

    def dead(*, preempted: bool) -> BaseException:
        death = RayActorError(preempted=preempted)
        found: BaseException = WorkerHealthCheckFailedError("dead", death)
        return found

    return {
        "a rank raised": WorkerGroupError("x", {0: ValueError("x")}),
        "a rank died": WorkerGroupError("x", {1: dead(preempted=False)}),
        "a node was reclaimed unannounced": WorkerGroupError(
            "x", {0: RuntimeError("Connection reset"), 1: dead(preempted=True)}
        ),
        "a preemption was waited out": PreemptionError(Info()),
        "no group came up": ControllerError(WorkerGroupStartupTimeoutError(2)),
    }


EXPECTED = {
    "a rank raised": FAILURES,
    "a rank died": FAILURES,
    "a node was reclaimed unannounced": PREEMPTIONS,
    "a preemption was waited out": PREEMPTIONS,
    "no group came up": CONTROLLER,
}


@pytest.mark.parametrize("what", list(EXPECTED))
def test_a_failure_is_charged_as_rays_own_policy_does(what: str) -> None:
    from ray.train import FailureConfig
    from ray.train.v2._internal.execution.failure_handling.default import DefaultFailurePolicy

    error = _errors()[what]
    assert charged(error) == EXPECTED[what]

    limits = {FAILURES: 0, PREEMPTIONS: 0, CONTROLLER: 0}
    for budget in limits:
        # Only the budget against which it counts permits one: then it is retried.
        policy = DefaultFailurePolicy(FailureConfig(**{**limits, budget: 1}))
        retried = policy.make_decision(error).value == "RETRY"
        assert retried == (budget == EXPECTED[what])


def test_uncounted_failure_is_charged_to_no_budget() -> None:
    assert charged(None) == ""
    assert charged(ValueError("of the driver")) == ""
