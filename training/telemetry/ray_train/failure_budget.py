"""Which of a run's budgets a failure is charged to.

As Ray Train's DefaultFailurePolicy decides (ray.train.v2._internal.execution.failure_handling,
Ray 2.60): a failure of the controller's own first, then a preemption, also when the node of only
one of the dead ranks was preempted, else the ranks' failure. The errors are told apart by what they
carry, as in `reason.py`, so that this needs no Ray.
"""

from __future__ import annotations

from collections.abc import Mapping

NOTHING = "none"
"""An end that costs nothing: finished, or resized."""
FAILURES = "max_failures"
PREEMPTIONS = "max_preemption_failures"
CONTROLLER = "controller_failure_limit"


def charged(error: BaseException | None) -> str:
    """The field of Ray Train's FailureConfig that counts it; "" for what none of them counts."""
    if isinstance(getattr(error, "controller_failure", None), BaseException):
        return CONTROLLER
    if getattr(error, "preemption_info", None) is not None:
        return PREEMPTIONS
    failures = getattr(error, "worker_failures", None)
    if not isinstance(failures, Mapping):
        return ""
    return PREEMPTIONS if any(map(_is_preempted, failures.values())) else FAILURES


def _is_preempted(error: BaseException | None) -> bool:
    error = getattr(error, "health_check_failure", None) or error
    return getattr(error, "preempted", False) is True
