"""The causes of failures as text: of the attempts of a run, or of a job."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.insight.causes.text import lines
from cockpit.insight.causes.types import Cause

SHOWN = 10
"""The newest; how many others there are is stated."""


def print_causes(name: str, causes: Sequence[Cause]) -> None:
    if not causes:
        print(f"{name}: no attempt ended badly." if name else "No run or job ended badly.")
        return
    left_out = len(causes) - SHOWN
    print(name + (f", {left_out} earlier attempts are not shown" if left_out > 0 else ""))
    for cause in causes[-SHOWN:]:
        print("\n".join(["", *lines(cause)]))
