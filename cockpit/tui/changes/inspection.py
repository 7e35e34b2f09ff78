"""Show an object: as the cluster describes it, or from the store if the cluster cannot."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from cockpit.insight.waiting.chain import cluster_chain, group_chain, job_chain, pod_chain
from cockpit.insight.waiting.text import lines
from cockpit.model.error import CockpitError
from cockpit.model.waiting import Chain
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from cockpit.tui.app_base import AppBase
from cockpit.tui.changes.changes import allowed
from cockpit.tui.changes.copies import copies
from cockpit.tui.changes.object_yaml import yaml
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.keys import shown_key
from cockpit.tui.view_state import Target

READING_CELLS, FRAME_CELLS = 110, 6
"""The width of a Reading at most, and of its frame."""
KINDS = ("cluster", "group", "pod", "node", "rayjob")
"""The objects that a backend can show and describe."""


async def show_object(app: AppBase, target: Target) -> None:
    """The cluster's description if it is available, else the facts of the store."""
    shown = in_cluster(app.store, target)
    if shown is not None and not app.refusal("manifest"):
        await _read(app, shown, "", app.actions.manifest(shown.kind, shown.name))
        return
    found = _known(app.store, target)
    if found is None:
        raise CockpitError(f"There is no {target.kind} {target.name} any more.")
    title = f"{target.kind} {target.name}"
    app.push_screen(Reading(title, yaml(found), copies(target, app.store.ref)))


async def describe(app: AppBase, target: Target) -> None:
    actions = allowed(app, "describe", "Nothing was described.")
    shown = in_cluster(app.store, target)
    if shown is None:
        raise CockpitError(
            f"Kubernetes has no object for {target.kind} {target.name}.",
            todo=f"{shown_key('object')} shows what is known of it.",
        )
    answer = actions.describe(shown.kind, shown.name)
    width = min(READING_CELLS, app.size.width * 9 // 10) - FRAME_CELLS
    await _read(app, shown, " · described", answer, waits(app.store, shown, width))


def in_cluster(store: Store, target: Target) -> Target | None:
    """The Kubernetes object of the selected row."""
    if target.kind == "job":
        job = store.jobs.get(target.name)
        return Target("rayjob", job.rayjob) if job is not None and job.rayjob else None
    return target if target.kind in KINDS else None


def waits(store: Store, shown: Target, width: int) -> str:
    """Why the object waits, stage by stage, in lines of `width`; empty if it does not."""
    found: Chain | None = None
    if shown.kind == "cluster":
        found = cluster_chain(store)
    elif shown.kind == "group" and shown.name in store.groups:
        found = group_chain(store, shown.name)
    elif shown.kind == "pod" and shown.name in store.pods:
        found = pod_chain(store, shown.name)
    elif shown.kind == "rayjob":
        job = next((job for job in store.jobs.values() if job.rayjob == shown.name), None)
        # The pods of a cluster of its own are not in the store.
        is_here = store.ref is not None and job is not None and job.cluster == store.ref.name
        if job is not None and not job.submitted and (is_here or job.queue):
            found = job_chain(store, job)
    if found is None or found.blocking is None:
        return ""
    return "\n".join([f"Waits: {found.summary}", *lines(found, width), "", ""])


async def _read(
    app: AppBase, shown: Target, how: str, answer: Coroutine[Any, Any, str], first: str = ""
) -> None:
    """The page opens at once, and is filled when the response arrives, below `first`."""
    more = copies(shown, app.store.ref) if not how else {}
    page = Reading(f"{shown.kind} {shown.name}{how}", f"{first}Loading…", more)
    app.push_screen(page)
    try:
        text = await app.submit(answer)
    except CockpitError:
        if page.is_current:
            page.dismiss(None)
        raise
    page.fill(first + text)


def _known(store: Store, target: Target) -> object:
    run = current_run(store)
    match target.kind:
        case "pod":
            return store.pods.get(target.name)
        case "group":
            return store.groups.get(target.name)
        case "node":
            return store.kubernetes_nodes.get(target.name)
        case "job":
            return store.jobs.get(target.name)
        case "cluster":
            return store.ref and {
                "cluster": store.ref,
                "health": store.health.value,
                "message": store.health_message,
                "ray_version": store.ray_version,
            }
        case "deployment":
            return store.deployments.get(target.name)
        case "trial":
            name, _, trial = target.name.rpartition("/")
            experiment = store.experiments.get(name)
            return experiment and experiment.trials.get(trial)
        case "rank" if run is not None:
            rank = run.ranks.get(int(target.name))
            return rank and {"placement": rank.placement, "sample": rank.sample}
    return None
