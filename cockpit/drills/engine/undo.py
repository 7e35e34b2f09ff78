"""Undoing effects, at the end of a drill or later: only what is still there."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from msgspec.structs import replace

from cockpit.backends.protocol import Backend
from cockpit.drills.engine import pod_script
from cockpit.drills.engine.journal import Entry, Journal
from cockpit.drills.faults.fault import Undo
from cockpit.model.cluster import NodeType
from cockpit.model.error import ChangedError, CockpitError, ReplacedError, UsageError
from cockpit.model.event import PodsListed
from cockpit.model.scale import ScaleRequest
from cockpit.model.text import one_line

LATE_S = 3.0
"""A request that was cut off may still be carried out within this: it is undone again after it."""


async def undo_effect(backend: Backend, undo: Undo, *, answered: bool = True) -> str:
    """Undo one effect, and return a line that describes it. Raises CockpitError if it persists.

    Without `answered` the fault may still begin, on a connection that was lost: a script in a pod
    is made to refuse it, and an API request is undone a second time.
    """
    if undo.verb == "exec":
        return await _in_pod(backend, undo if answered else pod_script.refusing(undo))
    if not answered:
        await _by_api(backend, undo)
        await asyncio.sleep(LATE_S)
    return await _by_api(backend, undo)


async def undo_effects(backend: Backend, journal: Journal, entry: Entry) -> list[str]:
    """Undo all effects of a drill, the newest first; return a line for each.

    Raises the first error after all of them were tried. Undone effects are removed from the
    journal.
    """
    done: list[str] = []
    failed: CockpitError | None = None
    for undo in reversed(entry.undo):
        try:
            done.append(await undo_effect(backend, undo, answered=entry.answered))
        except CockpitError as error:
            done.append(f"NOT undone: {undo.text}: {one_line(error.what)}")
            failed = failed or error
            continue
        try:
            journal.done(entry.drill_id, undo)
        except CockpitError as error:  # on a full disk the other effects are undone all the same
            done.append(f"undone, and kept in the journal: {one_line(error.what_and_why)}")
    if failed is not None:
        raise CockpitError(
            f"Drill {entry.drill_id} is not all undone.",
            one_line("; ".join(line for line in done if line.startswith("NOT"))),
            "Try again with: cockpit drill undo",
        ) from failed
    return done


async def _by_api(backend: Backend, undo: Undo) -> str:
    try:
        match undo.verb:
            case "uncordon":
                await backend.cordon(undo.name, False, uid=undo.uid)
            case "rejoin":
                await backend.rejoin(undo.name)
            case "scale":
                await _scaled(backend, undo)
            case "replace":
                await backend.delete_pod(undo.pod, uid=undo.uid, grace_s=0.0)
    except (ReplacedError, ChangedError) as error:
        return f"left as it is ({one_line(error.what)}): {undo.text}"
    except UsageError as error:  # there is no such object any more
        return f"nothing to undo ({one_line(error.what)}): {undo.text}"
    return f"done: {undo.text}"


async def _scaled(backend: Backend, undo: Undo) -> None:
    if undo.drilled is None:
        raise ReplacedError("Group", undo.name)  # it is unknown whether it is still the drill's
    await backend.scale(ScaleRequest(undo.name, undo.replicas, uid=undo.uid, expected=undo.drilled))


async def _in_pod(backend: Backend, undo: Undo) -> str:
    try:
        done = await backend.exec(undo.pod, undo.argv, uid=undo.uid)
    except (UsageError, ReplacedError):  # there is no such pod any more
        if not undo.anywhere:
            return f"ended with pod {undo.pod}: {undo.text}"
        other = await _living_pod(backend)
        if not other:
            raise
        undo = replace(undo, pod=other, uid="")
        done = await backend.exec(other, undo.argv)
    if done.exit_code == 0:
        return f"done: {undo.text}"
    raise CockpitError(
        f"{undo.text}: it failed in pod {undo.pod}.",
        pod_script.last_line(done),
        "Try again with: cockpit drill undo",
    )


async def _living_pod(backend: Backend) -> str:
    """A worker that is ready, else the head; empty without either."""
    async with aclosing(backend.watch()) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, PodsListed) and not event.more:
                ready = [pod for pod in event.pods if pod.ready]
                ready.sort(key=lambda pod: (pod.node_type is NodeType.HEAD, pod.name))
                return ready[0].name if ready else ""
    return ""
