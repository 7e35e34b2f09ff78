"""`cockpit why KIND/NAME`: what a job, a worker group, a pod or the cluster waits for."""

from __future__ import annotations

import argparse

from cockpit.cli.options import answers, connect
from cockpit.cli.output import tables
from cockpit.insight.waiting.chain import cluster_chain, group_chain, job_chain, pod_chain
from cockpit.insight.waiting.text import lines
from cockpit.model.cluster import ClusterHealth
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.run import Job
from cockpit.model.text import one_line
from cockpit.model.waiting import Chain
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store.store import Store

KINDS = ("cluster", "group", "job", "pod")
_WATCHED = ("cluster", "pods", "events", "rayjobs", "queues")
_OTHER_NAMES = {"rayjob": "job", "raycluster": "cluster", "po": "pod"}
READ_S = 3.0
"""How long it waits for the queues, after the pods are known."""


def names_object(text: str) -> bool:
    """Whether the argument is KIND/NAME or `cluster`, and not the name of a run or job."""
    return _kind(text.partition("/")[0]) in KINDS


def _kind(name: str) -> str:
    """`pods` is `pod`, as for `cockpit describe`."""
    name = name.lower().removesuffix("s")
    return _OTHER_NAMES.get(name, name)


def run(args: argparse.Namespace) -> int:
    kind, _, name = args.what.partition("/")
    kind = _kind(kind)
    if kind != "cluster" and not name:
        raise UsageError(f"{kind} needs a name.", todo=f"For example: cockpit why {kind}/NAME")
    with connect.session(args, sources=(), kinds=_WATCHED) as session:
        connect.wait_for(session, ("backend",))
        session.wait(_is_complete, READ_S)
        found = _chain(args, session, kind, name)
    if args.output != "table":
        tables.print_object(_row(found), args.output)
    else:
        print("\n".join(_text(found)))
    return 1 if args.fail and found.blocking is not None else int(ExitCode.DONE)


def _is_complete(store: Store) -> bool:
    """Queues are watched only while something waits."""
    waits = store.health is not ClusterHealth.READY or any(
        not pod.ready and pod.ended_s is None for pod in store.pods.values()
    )
    waits |= any(job.rayjob and not job.submitted for job in store.jobs.values())
    return bool(store.queues.source) or not waits


def _chain(args: argparse.Namespace, session: Session, kind: str, name: str) -> Chain:
    store = session.store
    if kind == "cluster":
        if not (store.groups or store.pods):
            answers.require(session, ("backend",))
        return cluster_chain(store)
    if kind == "job":
        job = connect.rayjob(store, name)
        if job is None:
            raise _missing(session, kind, name, [each.rayjob for each in store.jobs.values()])
        return _of_job(args, session, job)
    if kind == "group":
        if name not in store.groups:
            raise _missing(session, kind, name, store.groups)
        return group_chain(store, name)
    if name not in store.pods:
        raise _missing(session, kind, name, store.pods)
    return pod_chain(store, name)


def _of_job(args: argparse.Namespace, session: Session, job: Job) -> Chain:
    """With the pods of its own cluster, if it has one."""
    own = connect.cluster_of(args, session, job)
    if own is session.backend:
        return job_chain(session.store, job)
    with builder.session_on(own, sources=()) as other:
        connect.wait_for(other, ("backend",))
        return job_chain(session.store, job, other.store)


def _missing(session: Session, kind: str, name: str, known: object) -> UsageError:
    answers.require(session, ("backend",))
    names = ", ".join(each for each in known if each) if isinstance(known, (list, dict)) else ""
    title = "RayJob" if kind == "job" else kind
    return UsageError(f"There is no {title} {one_line(name)!r}.", f"Available: {names or 'none'}.")


def _row(found: Chain) -> dict[str, object]:
    return {
        "kind": found.kind,
        "name": found.name,
        "waits": found.blocking is not None,
        "summary": found.summary,
        "links": [
            {"stage": link.stage, "state": link.state, "text": link.text, "todo": link.todo}
            for link in found.links
        ],
    }


def _text(found: Chain) -> list[str]:
    title = f"{found.kind.capitalize()} {found.name}"
    if found.blocking is None:
        return [f"{title} is not waiting for anything.", *lines(found)]
    return [f"{title}: {found.summary}", "", *lines(found)]
