"""Taking effects back, now or at the next start."""

from __future__ import annotations

from contextlib import aclosing

from cockpit.backends.protocol import Backend
from cockpit.drills import agent
from cockpit.drills.fault import Undo
from cockpit.drills.journal import Entry, Journal
from cockpit.model.cluster import NodeType
from cockpit.model.error import CockpitError, ReplacedError, UsageError
from cockpit.model.event import PodsListed
from cockpit.model.text import one_line


async def take_back(backend: Backend, undo: Undo) -> str:
    """Undo one effect; one line on what was done. Raises CockpitError when it is still there."""
    match undo.verb:
        case "exec":
            return await _in_pod(backend, undo)
        case "uncordon":
            await backend.cordon(undo.name, False)
        case "rejoin":
            await backend.rejoin(undo.name)
        case "scale":
            await backend.scale(undo.name, undo.replicas)
        case "replace":
            return await _replaced(backend, undo)
    return f"done: {undo.text}"


async def take_all_back(backend: Backend, journal: Journal, entry: Entry) -> list[str]:
    """Everything that a drill has left, the newest effect first; a line for each.

    Raises the first error after all of them were tried; what was undone is out of the journal.
    """
    said: list[str] = []
    failed: CockpitError | None = None
    for undo in reversed(entry.undo):
        try:
            said.append(await take_back(backend, undo))
        except CockpitError as error:
            said.append(f"NOT undone: {undo.text}: {one_line(error.what)}")
            failed = failed or error
        else:
            journal.done(entry.drill_id, undo)
    if failed is not None:
        raise CockpitError(
            f"Drill {entry.drill_id} is not all undone.",
            one_line("; ".join(line for line in said if line.startswith("NOT"))),
            "Try again with: cockpit drill undo",
        ) from failed
    return said


async def _replaced(backend: Backend, undo: Undo) -> str:
    try:
        await backend.delete_pod(undo.pod, uid=undo.uid, grace_s=0.0)
    except (ReplacedError, UsageError):  # there is no such pod any more
        return f"gone with pod {undo.pod}: {undo.text}"
    return f"done: {undo.text}"


async def _in_pod(backend: Backend, undo: Undo) -> str:
    try:
        done = await backend.exec(undo.pod, undo.argv)
    except UsageError:  # there is no such pod any more
        other = await _living_pod(backend) if undo.anywhere else ""
        if not other:
            if undo.anywhere:
                raise
            return f"gone with pod {undo.pod}: {undo.text}"
        done = await backend.exec(other, undo.argv)
    if done.exit_code == 0:
        return f"done: {undo.text}"
    raise CockpitError(
        f"{undo.text}: it failed in pod {undo.pod}.",
        agent.last_words(done),
        "Try again with: cockpit drill undo",
    )


async def _living_pod(backend: Backend) -> str:
    """A worker that is ready, else the head; empty when there is none."""
    async with aclosing(backend.watch()) as events:  # type: ignore[type-var]
        async for event in events:
            if isinstance(event, PodsListed) and not event.more:
                ready = [pod for pod in event.pods if pod.ready]
                ready.sort(key=lambda pod: (pod.node_type is NodeType.HEAD, pod.name))
                return ready[0].name if ready else ""
    return ""
