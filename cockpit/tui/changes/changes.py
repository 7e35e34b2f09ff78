"""Check and confirm a change, run it on the session's loop, and report the result.

Coroutines for `AppBase.attempt`, which shows their CockpitError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cockpit.insight.waiting.advice import resized_in_queue
from cockpit.model.cluster import ClusterHealth, is_protected
from cockpit.model.error import CockpitError, NotAllowedError, UsageError
from cockpit.model.run import Job
from cockpit.model.scale import ScaleRequest, plan_scale, unit, wanted_replicas
from cockpit.model.text import one_line
from cockpit.tui.app_base import AppBase
from cockpit.tui.dialogs.confirm import Confirm
from cockpit.tui.dialogs.launch import Launch, Order
from cockpit.tui.keys import shown_key

if TYPE_CHECKING:
    from cockpit.actions.drills import DrillActions
    from cockpit.launch.flags import Launchable
    from cockpit.launch.folder import Folder
    from cockpit.preflight.finding import Finding


async def scale(app: AppBase, group: str, replicas: str) -> None:
    """To `3`, or by `+1`."""
    actions = allowed(app, "scale", "Nothing was scaled.")
    current = app.store.groups.get(group)
    if current is None:
        names = ", ".join(app.store.groups) or "none yet"
        what = f"There is no worker group {group!r}." if group else "No worker group is selected."
        raise UsageError(what, f"Groups: {names}.")
    plan = plan_scale(current, wanted_replicas(replicas, current))
    if plan.after is None or plan.after == plan.before:
        raise UsageError(
            f"Group {group} stays at {unit(plan.before, current)}.",
            f"It may have {plan.low} to {plan.high}.",
        )
    uid = app.store.uid
    question = "Scale up?" if plan.after > plan.before else "Scale down?"
    lines = [*plan.lines, *resized_in_queue(app.store)]
    if await app.push_screen_wait(confirmation(app, question, lines, "Scale")):
        done = await app.submit(actions.scale(ScaleRequest(group, plan.after, uid=uid)))
        text = f"Group {group}: {done.before} → {done.after}. {done.warning}".strip()
        app.notify(text, title="Scaled", markup=False)


async def stop(app: AppBase, job_id: str) -> None:
    actions = allowed(app, "launch", "Nothing was stopped.")
    job = app.store.jobs.get(job_id)
    if job is not None and job.status.is_over:
        raise CockpitError(f"Job {job_id} has already ended: {job.status}.")
    lines = [f"Stop job {job_id}.", job.entrypoint if job else "", "Its run ends; no restart."]
    lines += _of_rayjob(job)
    if await app.push_screen_wait(
        confirmation(app, "Stop this job?", [x for x in lines if x], "Stop")
    ):
        await app.submit(actions.stop_job(job_id, uid=job.rayjob_uid if job else ""))
        app.notify(f"Job {job_id}.", title="Stopping", markup=False)


async def resume(app: AppBase, job_id: str) -> None:
    """Submit a job that has ended again; it continues from its last checkpoint."""
    actions = allowed(app, "launch", "Nothing was submitted.")
    lines = [f"Submit job {job_id} again.", "It continues from its last checkpoint."]
    if await app.push_screen_wait(Confirm("Resume this job?", lines, "Resume")):
        job = await app.submit(actions.resume(job_id))
        app.notify(f"{job_id} was submitted again as {job.id}.", title="Resumed", markup=False)


async def delete(app: AppBase, job_id: str) -> None:
    actions = allowed(app, "launch", "Nothing was deleted.")
    lines = [f"Delete job {job_id} and its log from Ray."]
    job = app.store.jobs.get(job_id)
    lines += _of_rayjob(job)
    if await app.push_screen_wait(confirmation(app, "Delete this job?", lines, "Delete")):
        await app.submit(actions.delete_job(job_id, uid=job.rayjob_uid if job else ""))
        app.notify(f"Job {job_id} and its log.", title="Deleted", markup=False)


def _of_rayjob(job: Job | None) -> list[str]:
    if job is None or not job.rayjob:
        return []
    return [f"It is RayJob {job.rayjob}" + (f", on cluster {job.cluster}." if job.cluster else ".")]


async def launch(app: AppBase, chosen: str = "") -> None:
    actions = allowed(app, "launch", "Nothing was launched.")
    jobs = actions.bundled_jobs()
    if not jobs:
        raise CockpitError("There is no bundled job to launch.")
    rayjob = app.capabilities.get("rayjob")
    may_rayjob = rayjob is not None and rayjob.allowed
    ref = app.session.backend.ref if app.session is not None else None
    # The name first: a long context is cut at the end of the title.
    names = (ref.name, ref.namespace, ref.context) if ref is not None else ()
    where = " · ".join(one_line(name) for name in names if name)

    async def check(order: Order) -> list[Finding]:
        return await preflight(app, actions, order)

    form = Launch(jobs, chosen, rayjob=may_rayjob, where=where, check=check)
    while (order := await app.push_screen_wait(form)) is not None:
        try:
            made = await asyncio.to_thread(actions.order, *described(order))
            if (uploads := await asyncio.to_thread(made.spec.chosen)) is not None:
                if not await _is_uploaded(app, made, uploads):
                    return
                made = replace(made, spec=replace(made.spec, uploads=uploads))
            app.notify(f"Launching {order.title} …", timeout=3, markup=False)
            job_id = await app.submit(actions.launch_order(made))
        except UsageError as error:  # the input is kept, to be corrected
            form = Launch(
                jobs,
                order.name,
                rayjob=may_rayjob,
                typed=order,
                wrong=str(error),
                where=where,
                check=check,
            )
            continue
        what = "job" if made.options is None else "RayJob"
        app.notify(f"{order.title} is {what} {job_id}.", title="Launched", markup=False)
        return


def described(order: Order) -> tuple[str, Mapping[str, str], str, str]:
    """The arguments of `ClusterActions.order`."""
    return order.name, order.settings, order.via, order.flags


async def _is_uploaded(app: AppBase, made: Launchable, uploads: Folder) -> bool:
    """Ask before the folder of a command is uploaded."""
    from cockpit.launch.folder import summary

    lines = [f"Launch {made.spec.shown_command}.", *summary(uploads)]
    return await app.push_screen_wait(Confirm("Launch this command?", lines, "Launch"))


async def preflight(app: AppBase, actions: DrillActions, order: Order) -> list[Finding]:
    """Check the pods for the order, for LAUNCH_S at most.

    Nothing where there is no head or the order is wrong: the launch reports it.
    """
    from cockpit.preflight.finding import Finding, State
    from cockpit.preflight.preflight import LAUNCH_S
    from cockpit.preflight.target import target

    store = app.store
    chosen = target(store.pods.values(), store.groups.values(), store.nodes.values() or None)
    if chosen.head is None:
        return []
    try:
        made = await asyncio.to_thread(actions.order, *described(order))
        if made.options is not None and made.options.own_cluster:
            return await app.submit(
                actions.preflight_of_new_cluster(made.spec, made.options, timeout_s=LAUNCH_S)
            )
        wanted = await asyncio.to_thread(actions.demand, made.spec)
        return await app.submit(actions.preflight(chosen, wanted, timeout_s=LAUNCH_S))
    except UsageError:
        return []
    except CockpitError as error:
        return [Finding("preflight", State.SKIPPED, one_line(str(error)))]


async def leave(app: AppBase) -> None:
    """Quit; asks for confirmation when quitting deletes something, or a drill has to be undone."""
    ends = app.connection.ends_with_screen if app.connection else ""
    if ends and await _is_deleted(app):
        ends = ""
    lines = [f"Quitting deletes {ends}."] if ends else []
    drill = app.conducting
    if drill is not None:
        lines.append(f"The drill {drill.name} is running: it is aborted and undone.")
    again = shown_key("quit")
    if lines and not await app.push_screen_wait(Confirm("Quit?", lines, "Quit", again=again)):
        return
    if drill is not None and app.conducting is drill:
        drill.abort()
        text = "Undoing the fault; then the UI quits."
        app.notify(text, title="Aborting the drill", timeout=30, markup=False)
        await drill.over.wait()
    app.leave()


async def _is_deleted(app: AppBase) -> bool:
    """Whether another process has already deleted the local cluster.

    A deleted cluster may still have pods that quitting ends, hence the second question.
    """
    if app.session is None or app.store.health is not ClusterHealth.DOWN:
        return False
    ref = app.session.backend.ref
    if ref.backend != "local":
        return False
    from cockpit.backends.local import status

    return await asyncio.to_thread(status, ref.name) is None


def confirmation(
    app: AppBase,
    question: str,
    lines: Sequence[str],
    yes: str,
    *,
    typed: str = "",
    destroys: bool = True,
) -> Confirm:
    """The dialog before a change, with the cluster first; a protected one requires its typed name.

    `typed`: text that must be typed in any case. `destroys`: the change deletes or stops something.
    """
    if app.session is None:
        return Confirm(question, lines, yes, typed=typed)
    ref = app.session.backend.ref
    where = [f"Cluster: {ref.described}."]
    if destroys and is_protected(ref, app.protected):
        where, typed = [f"{where[0]} It is protected."], ref.name
    return Confirm(question, [*where, *lines], yes, typed=typed)


def allowed(app: AppBase, verb: str, what: str) -> DrillActions:
    """The actions, or NotAllowedError with the reason."""
    if why := app.refusal(verb):
        raise NotAllowedError(what, why)
    return app.actions
