"""A dry run as text: the actions with their targets, the blast radius, the hypothesis. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit import format
from cockpit.drills.faults.fault import Armed
from cockpit.drills.gamedays.description import Here, commands_of, step_lines
from cockpit.drills.gamedays.gameday import GameDay
from cockpit.drills.plan.plan import DrillPlan
from cockpit.drills.probes.hypothesis import name_of
from cockpit.model.cluster import NodeType
from cockpit.model.text import one_line
from cockpit.store.store import Store
from cockpit.tui.keys import shown_key

MOST_RANKS = 16


def preview_lines(
    store: Store, plan: DrillPlan, seed: int, armed: Sequence[Armed], notes: Sequence[str]
) -> list[str]:
    """`notes`: warnings."""
    lines = [one_line(line, 300) for one in armed for line in one.prepared.lines]
    lines += [f"Then it is undone: {undo.text}." for one in armed for undo in one.prepared.undo]
    lines.append(_reach(store, armed))
    wanted = [name_of(probe) for probe in plan.hypothesis]
    if plan.recover_within_s is not None:
        wanted.append(f"first new step within {format.in_seconds(plan.recover_within_s)}")
    if plan.max_steps_lost is not None:
        wanted.append(f"at most {plan.max_steps_lost} steps lost")
    if plan.max_time_lost_s is not None:
        wanted.append(f"at most {format.in_seconds(plan.max_time_lost_s)} lost")
    lines += commands_of((*plan.hypothesis, *plan.abort))
    if wanted:
        lines.append(f"It passes if: {', '.join(wanted)}.")
    lines.append(f"Seed {seed}. {shown_key('abort')} aborts the drill and undoes the fault.")
    return [*(f"⚠ {one_line(note, 300)}" for note in notes), *lines]


def game_day_lines(day: GameDay, there: Here) -> list[str]:
    """Its steps, and which of them are not possible here."""
    about, *steps = step_lines(day, there)
    end = "The targets of each drill are chosen when it begins. "
    end += f"{shown_key('abort')} aborts the game day."
    return [about, "\n".join(step.strip() for step in steps), end]


def _reach(store: Store, armed: Sequence[Armed]) -> str:
    """How much of the cluster and of the run is hit."""
    pods = {pod.name: pod for one in armed for pod in one.victims.pods}
    ranks = sorted({victim.rank for one in armed for victim in one.victims.ranks})
    workers = [pod for pod in store.pods.values() if pod.node_type is NodeType.WORKER]
    hit = [pod for pod in pods.values() if pod.node_type is NodeType.WORKER]
    parts = [f"{len(hit)} of {len(workers)} worker pods"]
    parts += ["the HEAD: drivers on it die, and every run ends"] if len(hit) < len(pods) else []
    run = next((one.victims for one in armed if one.victims.run_id), None)
    again = any(one.fault.name == "random-kills" for one in armed)
    reaches = "It begins with" if again else "It affects"
    if run is None:
        return f"{reaches} {', '.join(parts)}."
    if ranks:
        parts.append(f"{format.ranks(ranks, MOST_RANKS)} of {run.world_size}")
    else:
        parts.append("no rank")
    return (
        f"{reaches} {', '.join(parts)} of run {one_line(run.run_name, 60)}: attempt "
        f"{run.attempt}, near step {run.step:,}."
    )
