"""`cockpit stop|delete|resume JOB`, whether it was submitted over HTTP or by a RayJob."""

from __future__ import annotations

import argparse
import sys

from cockpit.actions.jobs import JobActions
from cockpit.cli.options import confirm, connect
from cockpit.format import in_seconds
from cockpit.launch.closest_name import did_you_mean
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.model.run import Job
from cockpit.store.store import Store

WAIT_S = 300.0
"""How long `stop --wait` waits: Ray gives a job's processes seconds, a RayJob's pods a minute."""


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("job", help="the job's submission id, or the RayJob's name")
    if verb == "stop":
        parser.add_argument("--wait", action="store_true", help="wait until the job has ended")
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    with connect.session(args, sources=("ray",), kinds=("rayjobs",)) as session:
        connect.wait_for(session, ("backend",))
        rayjob = connect.rayjob(session.store, args.job)
        by_resource = rayjob is not None and args.verb != "resume"
        if rayjob is not None and args.verb == "resume":
            args.job = rayjob.id  # as Ray knows it
        confirm.require_permission(session, "rayjob" if by_resource else "launch")
        if not by_resource:
            connect.wait_for(session, ("ray",))
            job = _known(session.store, args.job)
            if args.verb == "stop" and job is not None and job.status.is_over:
                print(f"Job {job.id} has already ended: {job.status.value}.", file=sys.stderr)
                return int(ExitCode.DONE)
        plan = _plan_of_rayjob(args.verb, rayjob) if by_resource and rayjob else _plan(args)
        if not confirm.confirmed(args, [plan], session.backend.ref, destroys=args.verb != "resume"):
            return confirm.not_confirmed(args)
        actions = JobActions.on(session)
        uid = rayjob.rayjob_uid if rayjob is not None else ""
        if args.verb == "stop":
            session.call(actions.stop_job(args.job, uid=uid))
            print(f"Job {args.job} is stopping.", file=sys.stderr)
            if args.wait:
                _wait(session, args.job)
        elif args.verb == "delete":
            session.call(actions.delete_job(args.job, uid=uid))
            print(f"Job {args.job} is deleted.", file=sys.stderr)
        else:
            print(session.call(actions.resume(args.job)).id)
    return int(ExitCode.DONE)


def _known(store: Store, name: str) -> Job | None:
    """Return the job as Ray lists it, or None without an answer of Ray.

    UsageError for an unknown job.
    """
    state = store.sources.get("ray")
    if name in store.jobs or state is None or not state.ok:
        return store.jobs.get(name)
    ids = [job.id for job in store.jobs.values()]
    raise UsageError(
        f"There is no job {name!r}{did_you_mean(name, ids) or '.'}",
        f"Jobs: {', '.join(ids) or 'none'}.",
        "cockpit jobs shows them.",
    )


def _wait(session: connect.Session, name: str) -> None:
    def is_over(store: Store) -> bool:
        job = connect.rayjob(store, name) or store.jobs.get(name)
        return job is None or job.status.is_over

    if not session.wait(is_over, WAIT_S):
        raise CockpitError(
            f"Job {name} has not ended after {in_seconds(WAIT_S)}.",
            todo="See: cockpit jobs, cockpit pods",
        )
    print(f"Job {name} has ended.", file=sys.stderr)


def _plan(args: argparse.Namespace) -> str:
    return {
        "stop": f"Stop job {args.job}: its processes end; its checkpoints stay.",
        "delete": f"Delete job {args.job} and its log from Ray.",
        "resume": f"Submit job {args.job} again; it resumes from its last checkpoint.",
    }[str(args.verb)]


def _plan_of_rayjob(verb: str, job: Job) -> str:
    where = f"cluster {job.cluster}" if job.cluster else "its cluster"
    if verb == "stop":
        return f"Stop RayJob {job.rayjob} on {where}: its processes end; its checkpoints stay."
    return f"Delete RayJob {job.rayjob}, and {where} with it if it was made for the job."
