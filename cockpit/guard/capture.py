"""Save the stacks of all ranks in a hang."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from cockpit.guard.policy import Trigger, Trouble
from cockpit.insight.hang.before import changes
from cockpit.insight.hang.text import lines
from cockpit.insight.hang.verdict import verdict
from cockpit.store.store import Store


def captured(store: Store, trouble: Trouble, now_s: float) -> dict[str, Any]:
    """The trouble; of a hang with the verdict, its text, and the dump of each rank."""
    run = store.runs.get(trouble.run_id)
    found = verdict(run, now_s) if run is not None else None
    if found is None or trouble.trigger is not Trigger.HANG:
        return {"at_s": now_s, **to_builtins(trouble)}
    assert run is not None
    ranks = {
        rank: {
            **to_builtins(replace(one.dump, threads=())),
            "stacks": {
                thread.name or "training": one.stack(thread).frames for thread in one.dump.threads
            },
        }
        for rank, one in sorted(run.hang.dumps.items())
    }
    text = lines(found, changes(store, run, found))
    return {
        "at_s": now_s,
        **to_builtins(trouble),
        "text": text,
        "verdict": to_builtins(found),
        "silent": run.hang.silent,
        "ranks": ranks,
    }
