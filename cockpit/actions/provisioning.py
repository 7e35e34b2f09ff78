"""Create a cluster on Kubernetes from the manifests, and remove it, each with its audit line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from cockpit.actions import audit
from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.provision import apply, preconditions, removal
from cockpit.backends.kuberay.provision.apply import Planned, Step
from cockpit.backends.kuberay.provision.kinds import Object, described
from cockpit.backends.kuberay.provision.overlay import Wanted
from cockpit.backends.kuberay.provision.removal import Removal
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

KIND = "RayCluster"


async def plan(
    client: KubeClient,
    ref: ClusterRef,
    wanted: Wanted,
    objects: Sequence[Object],
    *,
    force: bool = False,
) -> tuple[Planned, ...]:
    """Check what must hold, and return what has to be done. Raises CockpitError."""
    await preconditions.require_kinds(client, ref, objects)
    await preconditions.require_rights(client, ref, objects)
    await preconditions.require_namespace(client, ref, wanted)
    planned = await apply.plan(client, ref, wanted, objects, force=force)
    await preconditions.require_storage(client, ref, objects)
    await preconditions.require_secret(client, ref, wanted)
    await preconditions.require_room(client, ref, objects)
    return planned


async def create(
    client: KubeClient,
    ref: ClusterRef,
    planned: Sequence[Planned],
    progress: Callable[[str], None],
    *,
    force: bool = False,
) -> None:
    """Create and change what the plan has. After an error, what was created before it stays."""
    audit.require_writable()
    todo = [each for each in planned if each.step in (Step.CREATE, Step.CHANGE)]
    done: list[Planned] = []
    try:
        for each in todo:
            await apply.apply(client, ref, each, force=force)
            done.append(each)
            word = "Created" if each.step is Step.CREATE else "Changed"
            progress(f"{word} {described(each.wanted)}.")
    except CockpitError as error:
        _record("up", ref, after=_counted(done), error=one_line(str(error)))
        if done:
            error.todo = _continued(ref)
        raise
    except asyncio.CancelledError:
        _record("up", ref, after=_counted(done), error="interrupted")
        raise
    _record("up", ref, after=_counted(done))


async def remove(
    client: KubeClient, ref: ClusterRef, found: Removal, progress: Callable[[str], None]
) -> int:
    """Delete what was found, and wait until it is deleted. Returns how many objects were."""
    audit.require_writable()
    before = ", ".join(described(each) for each in found.deleted)
    kept: list[Object] = []
    try:
        async for line in removal.remove(client, ref, found, kept):
            progress(line)
    except CockpitError as error:
        _record("down", ref, before=before, error=one_line(str(error)))
        raise
    except asyncio.CancelledError:
        _record("down", ref, before=before, error="interrupted: a part may be deleted")
        raise
    after = f"kept {', '.join(map(described, kept))}" if kept else ""
    _record("down", ref, before=before, after=after)
    return len(found.deleted) - len(kept)


def _record(
    action: str, ref: ClusterRef, *, before: str = "", after: str = "", error: str = ""
) -> None:
    audit.record(action, ref, ref.name, kind=KIND, before=before, after=after, error=error)


def _counted(done: Sequence[Planned]) -> str:
    created = [described(each.wanted) for each in done if each.step is Step.CREATE]
    changed = [described(each.wanted) for each in done if each.step is Step.CHANGE]
    parts = (("created", created), ("changed", changed))
    return "; ".join(f"{word} {', '.join(names)}" for word, names in parts if names)


def _continued(ref: ClusterRef) -> str:
    return (
        f"What was created stays: run the same command again, or cockpit down -n {ref.namespace} "
        f"--cluster {ref.name}"
    )
