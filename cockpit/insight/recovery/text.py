"""Format a recovery as text, for the CLI, the UI and reports."""

from __future__ import annotations

from cockpit.format import duration, plural
from cockpit.model.drill import Drill, Milestone, Recovery

REACHED = (
    (Milestone.DETECTED, "detected_s", "detected"),
    (Milestone.WORKERS_STARTED, "restarted_s", "restarted"),
    (Milestone.FIRST_STEP, "first_step_s", "first new step"),
)
"""The instants that a short line has room for."""
LOST = "Not recovered"


def sentence(measured: Recovery) -> str:
    """Describe the outcome: whether it recovered, after how long, and at what cost."""
    drill = measured.drill
    fault = _fault(drill)
    if not drill.run_id:
        if measured.pod_ready_s is None:
            return f"{fault}: not replaced (there was no run to watch)"
        back = duration(measured.pod_ready_s)
        return f"{fault}: replaced after {back} (there was no run to watch)"
    if measured.recovered:
        return f"recovered from {fault}: {', '.join(_parts(measured))}"
    if measured.interrupted is False:
        return f"continued through {_with_parts(measured)}"
    return f"{fault}: NOT recovered" + (f": {measured.reason}" if measured.reason else "")


def brief(measured: Recovery) -> str:
    """The same where there is little room."""
    if measured.recovered:
        return f"recovered {_from(measured)}"
    if measured.interrupted is False or not measured.drill.run_id:
        return sentence(measured)
    return f"the run did not recover {_from(measured)}"


def below_outcome(measured: Recovery) -> str:
    """The same below `outcome` as its title, which it continues."""
    if measured.recovered:
        return _from(measured)
    if not measured.drill.run_id:
        return sentence(measured)
    return f"by {_with_parts(measured)}" if measured.interrupted is False else _from(measured)


def so_far(measured: Recovery, now_s: float) -> str:
    """Describe the milestones, during and after the recovery; `now_s` in Unix seconds."""
    parts = _parts(measured)
    if measured.drill.run_id == "" and measured.pod_ready_s is not None:
        parts.append(f"replaced {duration(measured.pod_ready_s)}")
    elif not measured.recovered and measured.interrupted is not False:
        waited_s = max(0.0, now_s - measured.drill.injected_s)
        parts.append(f"not recovered after {duration(waited_s)}")
    elif measured.interrupted is False and not parts:
        parts.append("training continued")
    return f"{_fault(measured.drill)}: {', '.join(parts)}"


def outcome(measured: Recovery) -> str:
    """As short text, for a title."""
    if measured.recovered or (not measured.drill.run_id and measured.pod_ready_s is not None):
        return "Recovered"
    return "Not interrupted" if measured.interrupted is False else LOST


def _fault(drill: Drill) -> str:
    return f"{drill.fault} of {drill.target}" if drill.target else drill.fault


def _from(measured: Recovery) -> str:
    """From which fault, in what time and at what cost; if it did not recover, why."""
    text = f"from {_fault(measured.drill)}"
    if measured.first_step_s is None:
        return f"{text}: {measured.reason}" if measured.reason else text
    lost = measured.steps_lost
    tail = f", {plural(lost, 'step')} lost" if lost is not None else ""
    return f"{text} in {duration(measured.first_step_s)}{tail}"


def _with_parts(measured: Recovery) -> str:
    parts = _parts(measured)
    return _fault(measured.drill) + (f": {', '.join(parts)}" if parts else "")


def _parts(measured: Recovery) -> list[str]:
    times = [
        (text, of if (of := measured.reached(milestone)) is not None else getattr(measured, old))
        for milestone, old, text in REACHED
    ]
    if measured.interrupted is False:
        times.append(("throughput back", measured.reached(Milestone.THROUGHPUT_BACK)))
    found = [f"{text} {duration(at_s)}" for text, at_s in times if at_s is not None]
    if measured.steps_lost is not None:
        found.append(f"{plural(measured.steps_lost, 'step')} lost")
    elif measured.interrupted is False and measured.seconds_lost is not None:
        found.append(f"{duration(measured.seconds_lost)} lost")
    return found
