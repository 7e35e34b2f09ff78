"""Whether a drill has passed: what was measured against what was wanted. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.drills.plan.plan import DrillPlan
from cockpit.model.drill import Milestone, Recovery, Verdict


def judge(
    plan: DrillPlan, during: str, after: str, measured: Sequence[Recovery]
) -> tuple[Verdict, str]:
    """The first that decides: the hypothesis, whether it came back, how fast, what it cost.

    `during` and `after` are the probes that failed then, in words; empty where none did.
    """
    if during:
        return Verdict.FAILED, f"while the fault lasted: {during}"
    for one in measured:
        if missed := _missed(plan, one):
            return Verdict.FAILED, missed
    if after:
        return Verdict.FAILED, f"after the recovery: {after}"
    took = [one.first_step_s for one in measured if one.first_step_s is not None]
    slower = "; throughput was not back within 5 %" if any(map(_is_slower, measured)) else ""
    if took:
        return Verdict.PASSED, f"first new step after {max(took):.1f} s{slower}"
    if any(one.interrupted is False for one in measured):
        return Verdict.PASSED, f"training continued in the same attempt{slower}"
    return Verdict.PASSED, "there was no run to lose; its pods are back"


def _missed(plan: DrillPlan, one: Recovery) -> str:
    """What of the plan's targets this recovery missed, in one line."""
    drill = one.drill
    hit = f"{drill.fault} of {drill.target}"
    if drill.run_id and not one.recovered and one.interrupted is not False:
        return f"{hit}: the run did not come back" + (f" ({one.reason})" if one.reason else "")
    limit_s, took_s = plan.recover_within_s, one.first_step_s
    if limit_s is not None and took_s is not None and took_s > limit_s:
        return f"{hit}: first new step after {took_s:.1f} s, not {limit_s:g} s"
    most, lost = plan.max_steps_lost, one.steps_lost
    if most is not None and lost is not None and lost > most:
        return f"{hit}: {lost} steps lost, not {most}"
    if one.continuity is not None and not one.continuity.continuous:
        return f"{hit}: the loss is {one.continuity.after:.4g} after {one.continuity.before:.4g}"
    return ""


def _is_slower(one: Recovery) -> bool:
    """Whether it trains, and nothing else explains that its throughput was not seen to be back."""
    trains = bool(one.drill.run_id) and (one.recovered or one.interrupted is False)
    return trains and not one.unseen and one.reached(Milestone.THROUGHPUT_BACK) is None
