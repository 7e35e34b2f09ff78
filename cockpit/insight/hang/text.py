"""A verdict as lines of text, for the verb, the UI and the report."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from cockpit import format
from cockpit.insight.hang.advice import actions
from cockpit.insight.hang.sentence import group_name
from cockpit.insight.hang.types import GroupState, Kind, StackGroup, Verdict
from cockpit.model.hang import Stack

GROUPS, SEQUENCES = 4, 6
"""Process groups that are shown, and different sequence numbers in one."""
INNER, OUTER = 10, 3
"""Frames of a stack that are shown."""
BESIDE = 110
"""From this width on, two stacks are side by side."""
_GAP = "   "
_COMMAND, _NO_BREAK = re.compile(r"cockpit [a-z]+ \S+"), "\xa0"


def lines(
    found: Verdict, changes: Sequence[str] = (), width: int = 0, now_s: float | None = None
) -> list[str]:
    """The sentence first. `changes`: see `cockpit.insight.hang.before`. A `width` wraps lines.

    With `now_s`, also the age of the dumps: their times are those at that moment.
    """
    late = "" if found.is_late else ", bound not reached"
    text = [
        found.sentence,
        "",
        f"Kind: {found.kind.value}. Confidence: {found.confidence.value}{late}.",
    ]
    if now_s is not None:
        age_s = max(0.0, now_s - found.at_s)
        text.append(f"No progress for {format.duration(found.idle_s + age_s)}.")
        if found.kind is not Kind.RESOURCES:  # it is not from dumps
            text[-1] += f" Newest dump: {format.age(age_s)} ago."
    text += ["", "To do:", *(f"  {line}" for line in actions(found))]
    for of in found.groups[:GROUPS]:
        text += ["", f"Group {group_name(of)}, newest collective called:", *_group(of)]
    if len(found.groups) > GROUPS:
        text += [f"  … {format.plural(len(found.groups) - GROUPS, 'more group')}"]
    stacks = [line for block in _stacks(found.stacks, width) for line in ("", *block)]
    rest = ["", "Before the hang:", *(f"  {one}" for one in changes)] if changes else []
    if found.evidence:
        rest += ["", "Evidence:", *(f"  {one}" for one in found.evidence)]
    if not width:
        return text + stacks + rest
    if width < BESIDE:
        stacks = _wrapped(stacks, width)
    return [*_wrapped(text, width), *stacks, *_wrapped(rest, width)]


def _wrapped(text: Iterable[str], width: int) -> list[str]:
    """Continuation lines are indented as far as their line, and by two more cells.

    A command is not broken, so that it can be copied.
    """
    wrapped: list[str] = []
    for line in text:
        indent = line[: len(line) - len(line.lstrip())]
        following = f"{indent}  " if indent else ""
        kept = _COMMAND.sub(lambda found: found[0].replace(" ", _NO_BREAK), line)
        parts = textwrap.wrap(kept, width, subsequent_indent=following, break_on_hyphens=False) or [
            ""
        ]
        wrapped += [part.replace(_NO_BREAK, " ") for part in parts]
    return wrapped


def _stacks(groups: Sequence[StackGroup], width: int) -> list[list[str]]:
    """The cause beside the most common other stack, where there is room for both."""
    blocks = [_stack_group(group) for group in groups]
    if width < BESIDE or len(blocks) < 2:
        return blocks
    cells = (width - len(_GAP)) // 2
    pairs = zip_longest(blocks[::2], blocks[1::2], fillvalue=[""])
    return [
        [
            f"{left[:cells]:{cells}}{_GAP}{right[:cells]}".rstrip()
            for left, right in zip_longest(one, other, fillvalue="")
        ]
        for one, other in pairs
    ]


def _stack_group(group: StackGroup) -> list[str]:
    mark = f"cause, {group.place.value}" if group.is_cause else "waiting"
    ranks = format.ranks(group.ranks)
    heading = f"{ranks[:1].upper()}{ranks[1:]} ({mark}):"
    return [heading, *(f"  {line}" for line in _stack(group.stack))]


def _group(of: GroupState) -> list[str]:
    """Ranks by sequence number, those that lag first."""
    lines = []
    for seq, ranks in of.called.items():
        shape = f" ({of.shape})" if of.shape else ""
        waiting = (
            f" {of.op}{shape}, waiting for {format.in_seconds(of.age_s, 0)}"
            if seq == of.seq
            else ""
        )
        lines.append(f"  #{seq}{waiting}: {format.ranks(ranks)}")
    if len(lines) > SEQUENCES:
        lines[SEQUENCES:] = [f"  … {format.plural(len(lines) - SEQUENCES, 'more number')}"]
    return lines


def _stack(stack: Stack) -> list[str]:
    """The call and the frames, the innermost first; of many the middle is left out."""
    lines = [f"{'→' if at == stack.user else ' '} {frame}" for at, frame in enumerate(stack.frames)]
    if len(lines) > INNER + OUTER + 1:
        user = [line for line in lines[INNER:-OUTER] if line.startswith("→")]
        omitted = f"  … {format.plural(len(lines) - INNER - OUTER - len(user), 'more frame')}"
        lines = [*lines[:INNER], omitted, *user, *lines[-OUTER:]]
    return [f"  {stack.call}", *lines] if stack.call else lines
