"""A verdict as lines of text, for the verb and the screen."""

from __future__ import annotations

from cockpit import format
from cockpit.insight.hang.types import Kind, Verdict
from cockpit.model.hang import Stack

INNER, OUTER = 10, 3
"""Frames of a stack that are shown."""


def lines(found: Verdict) -> list[str]:
    late = "" if found.is_late else ", not late yet"
    text = [
        found.sentence,
        "",
        f"Kind: {found.kind.value}. Confidence: {found.confidence.value}{late}.",
    ]
    text += ["", "Evidence:", *(f"  {one}" for one in found.evidence)]
    for group in found.stacks:
        mark = f"cause, {group.place.value}" if group.is_cause else "waiting"
        ranks = format.ranks(group.ranks)
        text += ["", f"{ranks[:1].upper()}{ranks[1:]} ({mark}):"]
        text += [f"  {line}" for line in _stack(group.stack)]
    return [*text, "", "To do:", *(f"  {line}" for line in _todo(found))]


def _todo(found: Verdict) -> list[str]:
    """What the user can do now, in sentences."""
    end = "End the pod of the rank, so that the run restarts from its newest checkpoint"
    if found.ranks:
        end += f": cockpit kill {found.ranks[0]}"
    match found.kind:
        case Kind.SKIPPED | Kind.MISMATCH | Kind.DEADLOCK:
            return ["The script is wrong, and a restart would hang again: cockpit stop JOB"]
        case Kind.NETWORK:
            return ["Check the network between the nodes of these ranks: cockpit nodes --suspect"]
        case Kind.RAY:
            return ["Read what Ray's controller and raylets log: cockpit logs --all"]
        case Kind.RESOURCES:
            return ["Scale up a worker group, or stop what uses it: cockpit scale GROUP N"]
        case Kind.GPU | Kind.FROZEN:
            return [f"{end}.", "If it hangs again on this node: cockpit cordon NODE"]
    return [f"{end}.", "If it hangs at the same place again, stop the job: cockpit stop JOB"]


def _stack(stack: Stack) -> list[str]:
    """The call and the frames, the innermost first; of many the middle is left out."""
    lines = [f"{'→' if at == stack.user else ' '} {frame}" for at, frame in enumerate(stack.frames)]
    if len(lines) > INNER + OUTER + 1:
        user = [line for line in lines[INNER:-OUTER] if line.startswith("→")]
        omitted = f"  … {len(lines) - INNER - OUTER - len(user)} frames"
        lines = [*lines[:INNER], omitted, *user, *lines[-OUTER:]]
    return [f"  {stack.call}", *lines] if stack.call else lines
