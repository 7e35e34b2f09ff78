"""Changes of more than one pod or job: suspend a cluster, cordon a K8s node.

Coroutines for `AppBase.attempt`, as those of `cockpit.tui.changes.changes`.
"""

from __future__ import annotations

from cockpit.format import plural, verb
from cockpit.insight.waiting.advice import owned_by_queue
from cockpit.model.cluster import ClusterHealth
from cockpit.model.error import UsageError
from cockpit.store.store import Store
from cockpit.tui.app_base import AppBase
from cockpit.tui.changes.changes import allowed, confirmation
from cockpit.tui.views.nodes.rows import OnNode, on_nodes


async def suspend(app: AppBase, suspended: bool | None = None) -> None:
    """Delete all pods, or create them again; None toggles."""
    store, ref = app.store, app.view_state().ref  # known before the cluster has sent its data
    name, uid = ref.name if ref is not None else "", store.uid
    if suspended is None:
        suspended = store.health is not ClusterHealth.SUSPENDED
    done = "suspended" if suspended else "unsuspended"
    actions = allowed(app, "suspend", f"Nothing was {done}.")
    if suspended:
        question = confirmation(
            app, "Suspend the cluster?", _taken(store, name), "Suspend", typed=name
        )
    else:
        wanted = sum(group.desired for group in store.groups.values())
        pods = f"the head and {plural(wanted, 'worker')}" if wanted else "the head and its workers"
        lines = [f"Unsuspend cluster {name}.", f"Creates {pods} again, under new names."]
        lines += owned_by_queue(store, suspended=False)
        question = confirmation(app, "Unsuspend the cluster?", lines, "Unsuspend", destroys=False)
    if await app.push_screen_wait(question):
        await app.submit(actions.suspend(suspended, uid=uid))
        text = "its pods are being deleted" if suspended else "its pods are being created"
        title = "Suspended" if suspended else "Unsuspended"
        app.notify(f"{name}: {text}.", title=title, markup=False)


async def cordon(app: AppBase, name: str, cordoned: bool | None = None) -> None:
    """Cordon or uncordon the K8s node; None: toggle."""
    node = app.store.kubernetes_nodes.get(name)
    if cordoned is None:
        cordoned = node is None or not node.cordoned
    done = "cordoned" if cordoned else "uncordoned"
    actions = allowed(app, "cordon", f"Nothing was {done}.")
    if node is None:
        names = ", ".join(sorted(app.store.kubernetes_nodes)[:10]) or "none are known"
        raise UsageError(f"There is no K8s node {name!r}.", f"K8s nodes: {names}.")
    if cordoned == node.cordoned:
        raise UsageError(f"{name} is {'cordoned' if cordoned else 'not cordoned'} already.")
    here = on_nodes(app.store).get(name, OnNode())
    if cordoned:
        lines = [f"Cordon K8s node {name}: no new pod is placed on it.", *_there(here)]
        lines.append("They keep running. The replacement of a killed pod needs another node.")
        lines = lines if here.pods else lines[:-1]
        question = confirmation(app, "Cordon this K8s node?", lines, "Cordon")
    else:
        lines = [f"Uncordon K8s node {name}: new pods may be placed on it again.", *_there(here)]
        question = confirmation(app, "Uncordon this K8s node?", lines, "Uncordon", destroys=False)
    if await app.push_screen_wait(question):
        await app.submit(actions.cordon(name, cordoned, uid=node.uid))
        app.notify(
            "No new pod is placed on it." if cordoned else "New pods may be placed on it.",
            title=f"{name} is {done}",
            markup=False,
        )


def _taken(store: Store, name: str) -> list[str]:
    """The effect of suspending."""
    pods = len([pod for pod in store.pods.values() if pod.ended_s is None])
    lines = [f"Suspend cluster {name}: deletes all {plural(pods, 'pod')}, including the head."]
    going = [job for job in store.jobs.values() if not job.status.is_over]
    if going:
        names = ", ".join(job.id for job in going[:3]) + (" …" if len(going) > 3 else "")
        lines.append(f"{plural(len(going), 'running job')} {verb(len(going), 'end')}: {names}.")
    runs = [run.name or run.id for run in store.runs.values() if not run.state.is_over]
    if runs:
        lines.append(
            f"{plural(len(runs), 'run')} {verb(len(runs), 'end')}: {', '.join(runs)}. A run can "
            "resume from its last checkpoint."
        )
    lines += owned_by_queue(store, suspended=True)
    lines.append("Data that exists only in the pods is lost: logs, files, Ray's list of jobs.")
    return lines


def _there(here: OnNode) -> list[str]:
    """The pods of this cluster on a K8s node."""
    if not here.pods:
        return ["No pod of this cluster runs there."]
    names = ", ".join(pod.name for pod in here.pods[:4]) + (" …" if len(here.pods) > 4 else "")
    lines = [f"{plural(len(here.pods), 'pod')} of this cluster there: {names}."]
    if here.ranks:
        ranks = ", ".join(map(str, here.ranks[:16])) + (" …" if len(here.ranks) > 16 else "")
        lines.append(f"Ranks there: {ranks}.")
    return lines
