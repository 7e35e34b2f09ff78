"""One injected fault and what is measured of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drill:
    """A fault that was injected, with what was known of the run at that instant."""

    id: str
    fault: str
    """`pod-kill` (SIGKILL) or `pod-delete` (with grace)."""
    target: str
    """The pod's name."""
    ranks: tuple[int, ...]
    """The ranks that ran on the target."""
    injected_s: float
    grace_s: float
    run_id: str = ""
    """Empty when no run was going: then pods alone are timed."""
    attempt: int = 0
    step: int = 0
    """The last step known before the fault."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How the run came back from one drill. Seconds count from the injection; None: not yet."""

    drill: Drill
    pod_gone_s: float | None = None
    detected_s: float | None = None
    """The run left RUNNING or its attempt ended: Ray had noticed."""
    attempt_ended_s: float | None = None
    pod_ready_s: float | None = None
    """As many worker pods were ready again as before the fault."""
    restarted_s: float | None = None
    """The next attempt's worker group had started."""
    first_step_s: float | None = None
    """The next attempt's first new step had ended."""
    resumed_step: int | None = None
    """The first step of the next attempt."""
    last_step: int | None = None
    """The last step of the attempt that the fault ended."""
    reason: str = ""
    """Why Ray ended the attempt."""

    @property
    def recovered(self) -> bool:
        return self.first_step_s is not None

    @property
    def steps_lost(self) -> int | None:
        """Steps that had to be done again: last step of the old attempt − (first new − 1)."""
        if self.last_step is None or self.resumed_step is None:
            return None
        return max(0, self.last_step - (self.resumed_step - 1))
