"""The budget of a run to which a failure is charged.

As Ray Train's DefaultFailurePolicy decides (ray.train.v2._internal.execution.failure_handling, Ray
2.60): first a failure of the controller itself, then a preemption, also if the node of only one of
the dead ranks was preempted, else the ranks' failure. The errors are distinguished by their
attributes, as in `end_reason.py`, so that this does not need Ray.
"""

from __future__ import annotations

from collections.abc import Mapping

NOTHING = "none"
"""An end that is not charged: finished, or resized."""
FAILURES = "max_failures"
PREEMPTIONS = "max_preemption_failures"
CONTROLLER = "controller_failure_limit"


def charged(error: BaseException | None) -> str:
    """The field of Ray Train's FailureConfig that counts it; "" if none does."""
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
