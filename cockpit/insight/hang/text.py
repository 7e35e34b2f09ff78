"""A verdict as lines of text, for the verb and the screen."""

from __future__ import annotations

from cockpit import format
from cockpit.insight.hang.verdict import Verdict


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
        if group.stack.call:
            text.append(f"    {group.stack.call}")
        text += [
            f"  {'→' if at == group.stack.user else ' '} {frame}"
            for at, frame in enumerate(group.stack.frames)
        ]
    return text
