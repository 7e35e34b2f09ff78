"""What to do about a hang."""

from __future__ import annotations

import shlex

from cockpit.insight.hang.types import Kind, Verdict
from cockpit.model.text import one_line

_CORDON = "If it hangs again on this node: cockpit cordon NODE"


def actions(found: Verdict) -> list[str]:
    """Return the recommended actions, the first one first, each without its period."""
    job = _job(found)
    hangs_again = f"A restart would hang again, so stop the job: cockpit stop {job}"
    match found.kind:
        case Kind.SKIPPED | Kind.MISMATCH:
            branches = "The ranks take different branches: compare their code and data at that line"
            return [branches, hangs_again]
        case Kind.DEADLOCK:
            return ["Call the groups' collectives in the same order on all ranks", hangs_again]
        case Kind.NETWORK:
            return ["Check the network between the nodes of these ranks: cockpit nodes --suspect"]
        case Kind.RAY:
            return ["Read what Ray's controller and raylets log: cockpit logs --all"]
        case Kind.RESOURCES:
            return [
                "Scale up a worker group (cockpit scale GROUP N), or stop the jobs that use its "
                "resources"
            ]
        case Kind.SWAPPED:
            less = (
                "Use less memory, or give the ranks more: cockpit nodes shows the memory use "
                "of the node"
            )
            return [_restart(found), less]
        case Kind.GPU:
            return [_restart(found), _CORDON]
        case Kind.FROZEN:
            stack = f"Before that, read its stack with py-spy: cockpit stack {found.ranks[0]}"
            return [_restart(found), stack, _CORDON]
    again = f"If it hangs at the same place again, stop the job: cockpit stop {job}"
    return [_restart(found), again]


def _job(found: Verdict) -> str:
    """As an argument of a command."""
    return shlex.quote(one_line(found.job)) if found.job else "JOB"


def _restart(found: Verdict) -> str:
    if not found.may_restart:
        job = _job(found)
        return (
            "Ray Train does not restart the run (max_failures is 0). Stop the job, then submit it "
            f"again from its newest checkpoint: cockpit stop {job}, cockpit resume {job}"
        )
    end = "Delete the pod of the rank, so that the run restarts from its newest checkpoint"
    return f"{end}: cockpit kill {found.ranks[0]}" if found.ranks else end
