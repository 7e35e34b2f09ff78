"""`cockpit launch JOB`, `cockpit launch -- COMMAND`; `cockpit launch --list` is `launch_list`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from msgspec.structs import replace

from cockpit.actions.jobs import JobActions
from cockpit.backends.protocol import Backend
from cockpit.cli.change import launch_preflight
from cockpit.cli.options import confirm, connect
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.cli.read.logs import follow_job
from cockpit.config import file
from cockpit.format import bytes_text, in_seconds
from cockpit.launch import environment_flags, flags, mlflow_server, resubmit, submission
from cockpit.launch.capacity import beside, shortage
from cockpit.launch.folder import Folder, is_large, summary
from cockpit.launch.rayjob import RayJobOptions, resource_name
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.run import JobStatus
from cockpit.model.text import one_line
from cockpit.session.session import Session
from cockpit.sources.mlflow.settings import parse as mlflow_settings
from cockpit.sources.ray.dashboard import Dashboard

SECRET_IN_COMMAND = (
    "The command contains what looks like a secret: everyone who can list jobs or processes on the "
    "cluster can read it. Set it in the environment of the pods instead."
)
COMMAND_AFTER_DASHES = True


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.epilog = (
        "cockpit launch --list prints the jobs; cockpit launch JOB --list, the settings of one."
    )
    flags.arguments(parser)
    parser.add_argument(
        "--list", action="store_true", help="the bundled jobs; with a job's name, its settings"
    )
    parser.add_argument("--follow", "-f", action="store_true", help="print its log until it ends")
    parser.add_argument(
        "--resubmit",
        type=int,
        default=0,
        metavar="N",
        help="keep running, and submit it again up to N times if the head is lost",
    )
    parser.add_argument(
        "--no-preflight", action="store_true", help="do not check the pods before the launch"
    )
    how = parser.add_argument_group("on Kubernetes")
    how.add_argument(
        "--via", choices=("job", "rayjob"), default="job", help="over HTTP, or as a RayJob resource"
    )
    flags.of_rayjob(how)
    confirm.arguments(parser)
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        from cockpit.cli.change import launch_list

        return launch_list.run(args)
    options = flags.options(args)
    if args.resubmit and (args.follow or options is not None):
        raise UsageError(
            "--resubmit needs a job over HTTP, and cannot be combined with --follow.",
            "For a RayJob, use --retries: the KubeRay operator retries it.",
            "Leave out --follow or --via rayjob; cockpit logs JOB --follow prints the log.",
        )
    spec = flags.spec(args)
    mlflow = mlflow_settings(file.read().tables.get("mlflow", {}), os.environ)
    # Read once: what is uploaded is what the plan lists.
    uploads = spec.chosen()
    spec = replace(spec, uploads=uploads)
    # It deletes nothing, so it needs no confirmation; it prints what it does.
    may_ask, args.yes = not args.yes, args.yes or uploads is None or not is_large(uploads)
    on_another = options is not None and options.own_cluster
    checks = not (args.no_preflight or args.dry_run)
    kinds = ("cluster", "rayjobs", "queues") if options else ("cluster",) if args.dry_run else ()
    if checks and not on_another:
        kinds = (*launch_preflight.KINDS, *(("rayjobs",) if options else ()))
    with connect.session(args, sources=(), kinds=kinds) as session:
        confirm.require_permission(session, "rayjob" if options else "launch")
        plan = _plan(session.backend, spec, options)
        if spec.shown_command != spec.command:
            plan.append(SECRET_IN_COMMAND)
        plan += environment_flags.plan(spec.environment)
        spec = mlflow_server.with_mlflow(spec, mlflow, session.backend.ref.backend)
        plan += mlflow_server.plan(spec, mlflow, session.backend.ref.backend)
        if uploads is not None:
            in_map = f"{resource_name(spec.submission_id)}-package" if on_another else ""
            plan += summary(uploads, in_map)
            plan += files_listing(uploads) if args.dry_run else ()
        if args.dry_run and not on_another:
            plan += _lacking(session, spec)
        if not confirm.confirmed(args, plan, session.backend.ref):
            return confirm.not_confirmed(args)
        new = options if options is not None and options.own_cluster else None
        if checks and not launch_preflight.passes(session, spec, new, may_ask=may_ask):
            return int(ExitCode.FAILED)
        if options is None:
            return session.call(_launch(args, session.backend, spec))
        from cockpit.cli.change.rayjob import launch

        return launch(args, session, spec, options, follow_job)


def _plan(
    backend: Backend, spec: submission.LaunchSpec, options: RayJobOptions | None
) -> list[str]:
    if options is None:
        return [f"Launch {spec.shown_command} on {backend.ref}."]
    how = f"Launch {spec.shown_command} as a RayJob on {backend.ref}."
    if options.own_cluster:
        how = f"Launch {spec.shown_command} as a RayJob on a new cluster, a copy of {backend.ref}."
    limits = []
    if options.own_cluster:
        when = f"{in_seconds(options.ttl_s)} after" if options.ttl_s else "when"
        limits.append(f"KubeRay deletes the new cluster {when} the job ends.")
    if options.queue:
        limits.append(f"It starts when queue {options.queue} admits it: cockpit why job/NAME")
    if options.deadline_s is not None:
        limits.append(f"KubeRay ends the job after {in_seconds(options.deadline_s)}.")
    return [how, *limits]


def _lacking(session: Session, spec: submission.LaunchSpec) -> list[str]:
    """Missing resources for which the job would wait, shown by a dry run as well."""
    if session.backend.ref.backend == "address":
        return []  # its nodes join and leave independently: there is no maximum
    session.wait(lambda store: bool(store.groups), connect.SETTLE_S)
    lack = shortage(spec, session.store.groups.values())
    return [lack] if lack else []


async def _launch(args: argparse.Namespace, backend: Backend, spec: submission.LaunchSpec) -> int:
    async with Dashboard(backend.dashboard) as dashboard:
        actions = JobActions(backend)
        if args.resubmit and (running := await resubmit.already_running(dashboard, spec)):
            spec = running
            log(f"{spec.submission_id} is already running this command: waiting for it.")
            job = await dashboard.job(spec.submission_id)
        else:
            if words := beside(await dashboard.jobs()):
                log(words)
            job = await actions.submit(spec, log)
        if args.output == "table":
            print(job.id, flush=True)
        else:
            row = {"name": job.id, "status": job.status, "entrypoint": job.entrypoint}
            tables.print_object(row, args.output)
        if not args.follow and not args.resubmit:
            return int(ExitCode.DONE)
        if args.resubmit:
            ended = await actions.submit_and_resubmit(spec, args.resubmit, log)
        else:
            await follow_job(dashboard, job.id)
            ended = await dashboard.job(job.id)
    print(f"Job {ended.id} is {ended.status.value}.", file=sys.stderr)
    return int(ExitCode.DONE if ended.status is JobStatus.SUCCEEDED else ExitCode.FAILED)


def files_listing(chosen: Folder) -> Sequence[str]:
    """Every file with its size, then everything that is left out with the reason."""
    width = max((len(bytes_text(file.size_bytes)) for file in chosen.files), default=0)
    files = [
        f"  {bytes_text(file.size_bytes):>{width}}  {one_line(file.name, 1000)}"
        for file in chosen.files
    ]
    return [
        *files,
        *(f"  not uploaded ({item.why}): {one_line(item.name, 1000)}" for item in chosen.left_out),
    ]
