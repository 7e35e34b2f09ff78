"""A verdict as lines of text, for the verb and the screen."""

from __future__ import annotations

from cockpit import format
from cockpit.insight.hang.advice import actions
from cockpit.insight.hang.sentence import group_name
from cockpit.insight.hang.types import GroupState, Verdict
from cockpit.model.hang import Stack

GROUPS, SEQUENCES = 4, 6
"""Process groups that are shown, and different sequence numbers in one."""
INNER, OUTER = 10, 3
"""Frames of a stack that are shown."""


def lines(found: Verdict) -> list[str]:
    late = "" if found.is_late else ", not late yet"
    text = [
        found.sentence,
        "",
        f"Kind: {found.kind.value}. Confidence: {found.confidence.value}{late}.",
    ]
    text += ["", "To do:", *(f"  {line}" for line in actions(found))]
    for of in found.groups[:GROUPS]:
        text += ["", f"Group {group_name(of)}, newest collective called:", *_group(of)]
    if len(found.groups) > GROUPS:
        text += [f"  … {format.plural(len(found.groups) - GROUPS, 'more group')}"]
    for group in found.stacks:
        mark = f"cause, {group.place.value}" if group.is_cause else "waiting"
        ranks = format.ranks(group.ranks)
        text += ["", f"{ranks[:1].upper()}{ranks[1:]} ({mark}):"]
        text += [f"  {line}" for line in _stack(group.stack)]
    if found.evidence:
        text += ["", "Evidence:", *(f"  {one}" for one in found.evidence)]
    return text


def _group(of: GroupState) -> list[str]:
    """Ranks by sequence number, those that lag first."""
    lines = []
    for seq, ranks in of.last_called.items():
        shape = f" ({of.shape})" if of.shape else ""
        waiting = f" {of.op}{shape}, waiting for {of.age_s:.0f} s" if seq == of.seq else ""
        lines.append(f"  #{seq}{waiting}: {format.ranks(ranks)}")
    if len(lines) > SEQUENCES:
        lines[SEQUENCES:] = [f"  … {format.plural(len(lines) - SEQUENCES, 'more number')}"]
    return lines


def _stack(stack: Stack) -> list[str]:
    """The call and the frames, the innermost first; of many the middle is left out."""
    lines = [f"{'→' if at == stack.user else ' '} {frame}" for at, frame in enumerate(stack.frames)]
    if len(lines) > INNER + OUTER + 1:
        user = [line for line in lines[INNER:-OUTER] if line.startswith("→")]
        omitted = f"  … {len(lines) - INNER - OUTER - len(user)} frames"
        lines = [*lines[:INNER], omitted, *user, *lines[-OUTER:]]
    return [f"  {stack.call}", *lines] if stack.call else lines
