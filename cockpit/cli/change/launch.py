"""`cockpit launch JOB`, `cockpit launch -- COMMAND`; `cockpit launch --list` is `launch_list`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from cockpit.actions.jobs import JobActions
from cockpit.backends.protocol import Backend
from cockpit.cli.change import launch_environment, launch_preflight, launch_spec
from cockpit.cli.options import confirm, connect
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.cli.read.logs import follow_job
from cockpit.config import file
from cockpit.format import bytes_text, in_seconds, plural
from cockpit.launch import mlflow_server, submission
from cockpit.launch.capacity import beside, shortage
from cockpit.launch.folder import Folder, Why, folder
from cockpit.launch.rayjob import RayJobOptions, resource_name
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.run import JobStatus
from cockpit.model.text import one_line
from cockpit.session.session import Session
from cockpit.sources.mlflow.settings import parse as mlflow_settings
from cockpit.sources.ray.dashboard import Dashboard

SECRET_IN_COMMAND = (
    "The command has what looks like a secret: everyone who may list jobs or processes on the "
    "cluster can read it. Set it in the environment of the pods instead."
)
COMMAND_AFTER_DASHES = True


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.epilog = (
        "cockpit launch --list prints the jobs; cockpit launch JOB --list, the settings of one."
    )
    launch_spec.arguments(parser)
    parser.add_argument(
        "--list", action="store_true", help="the bundled jobs; with a job's name, its settings"
    )
    parser.add_argument("--follow", "-f", action="store_true", help="print its log until it ends")
    parser.add_argument(
        "--resubmit",
        type=int,
        default=0,
        metavar="N",
        help="keep running, and submit it again up to N times when the head was lost",
    )
    parser.add_argument(
        "--no-preflight", action="store_true", help="do not check the pods before the launch"
    )
    how = parser.add_argument_group("on Kubernetes")
    how.add_argument(
        "--via", choices=("job", "rayjob"), default="job", help="over HTTP, or as a RayJob resource"
    )
    how.add_argument(
        "--own-cluster", action="store_true", help="RayJob: run on a new cluster, a copy of this"
    )
    how.add_argument(
        "--replicas",
        action="append",
        default=[],
        metavar="GROUP=N",
        help="RayJob: the worker groups of its own cluster",
    )
    how.add_argument(
        "--image", default="", metavar="IMAGE", help="RayJob: the image of its own cluster's pods"
    )
    how.add_argument(
        "--queue",
        default="",
        metavar="NAME",
        help="RayJob: its own cluster waits in this LocalQueue of Kueue, or volcano:NAME",
    )
    how.add_argument(
        "--ttl",
        type=int,
        metavar="S",
        help="RayJob: delete its own cluster S seconds after the end",
    )
    how.add_argument("--deadline", type=int, metavar="S", help="RayJob: end it after S seconds")
    how.add_argument(
        "--retries", type=int, default=0, metavar="N", help="RayJob: number of retries"
    )
    confirm.arguments(parser)
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        from cockpit.cli.change import launch_list

        return launch_list.run(args)
    options = _options(args)
    if args.resubmit and (args.follow or options is not None):
        raise UsageError(
            "--resubmit is for a job over HTTP, and does not follow its log.",
            "A RayJob has --retries, and its operator for it.",
            "Leave out --follow or --via rayjob; cockpit logs JOB --follow prints the log.",
        )
    spec = launch_spec.spec(args)
    mlflow = mlflow_settings(file.read().tables.get("mlflow", {}), os.environ)
    uploads = folder(spec.directory) if spec.directory is not None else None
    # It deletes nothing, so it needs no confirmation; it prints what it does.
    may_ask, args.yes = not args.yes, args.yes or uploads is None or not is_large(uploads)
    on_another = options is not None and options.own_cluster
    checks = not (args.no_preflight or args.dry_run or on_another)
    kinds = ("cluster", "rayjobs", "queues") if options else ("cluster",) if args.dry_run else ()
    if checks:
        kinds = (*launch_preflight.KINDS, *(("rayjobs",) if options else ()))
    with connect.session(args, sources=(), kinds=kinds) as session:
        confirm.require_permission(session, "rayjob" if options else "launch")
        plan = _plan(session.backend, spec, options)
        if spec.shown_command != spec.command:
            plan.append(SECRET_IN_COMMAND)
        plan += launch_environment.plan(spec.environment)
        spec = mlflow_server.with_mlflow(spec, mlflow, session.backend.ref.backend)
        plan += mlflow_server.plan(spec, mlflow, session.backend.ref.backend)
        if uploads is not None:
            in_map = f"{resource_name(spec.submission_id)}-package" if on_another else ""
            plan += files_summary(uploads, in_map)
            plan += files_listing(uploads) if args.dry_run else ()
        if args.dry_run and not on_another:
            plan += _lacking(session, spec)
        if not confirm.confirmed(args, plan, session.backend.ref):
            return confirm.not_confirmed(args)
        if checks and not launch_preflight.passes(session, spec, may_ask=may_ask):
            return int(ExitCode.FAILED)
        if options is None:
            return session.call(_launch(args, session.backend, spec))
        from cockpit.cli.change.rayjob import launch

        return launch(args, session, spec, options)


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
        if words := beside(await dashboard.jobs()):
            log(words)
        actions = JobActions(backend)
        job = await actions.submit(spec)
        if args.output == "table":
            print(job.id, flush=True)
        else:
            tables.print_json({"name": job.id, "status": job.status, "entrypoint": job.entrypoint})
        if not args.follow and not args.resubmit:
            return int(ExitCode.DONE)
        if args.resubmit:
            ended = await actions.submit_and_resubmit(spec, args.resubmit, log)
        else:
            await follow_job(dashboard, job.id)
            ended = await dashboard.job(job.id)
    print(f"Job {ended.id} is {ended.status.value}.", file=sys.stderr)
    return int(ExitCode.DONE if ended.status is JobStatus.SUCCEEDED else ExitCode.FAILED)


def _options(args: argparse.Namespace) -> RayJobOptions | None:
    """None for a job over HTTP. UsageError for flags that are a RayJob's alone."""
    replicas = dict(_number_of(text) for text in args.replicas)
    given = RayJobOptions(
        args.own_cluster, replicas, args.image, args.ttl, args.deadline, args.retries, args.queue
    )
    if args.via == "rayjob":
        own = {"--replicas": replicas, "--image": args.image, "--queue": args.queue}
        flag = next((name for name, value in own.items() if value), "")
        flag = flag or ("--ttl" if args.ttl is not None else "")
        if flag and not given.own_cluster:
            raise UsageError(
                f"{flag} is for a cluster of the job's own.",
                "The current cluster is not changed.",
                "Add --own-cluster, or scale this one: cockpit scale GROUP N",
            )
        if args.retries and not given.own_cluster:
            raise UsageError(
                "--retries is for a cluster of the job's own.",
                "KubeRay refuses retries of a RayJob on a RayCluster that exists.",
                "Add --own-cluster, or omit --retries: the run itself restarts after a lost pod.",
            )
        return given
    if given != RayJobOptions():
        raise UsageError(
            "--own-cluster, --replicas, --image, --queue, --ttl, --deadline and --retries are for "
            "a RayJob.",
            todo="Add --via rayjob.",
        )
    return None


def _number_of(text: str) -> tuple[str, int]:
    group, number = launch_spec.pair(text, "--replicas", "gpu=2")
    if not number.isdecimal():
        raise UsageError(f"--replicas {text!r} is not GROUP=N.", todo="For example: gpu=2")
    return group, int(number)


ASK_ABOVE_BYTES = 10_000_000
"""A larger folder is confirmed first: it is more than code."""
NAMED = 3
"""This many names of each kind that is left out are in the plan; --dry-run lists all."""


def files_summary(chosen: Folder, config_map: str = "") -> list[str]:
    """Describe how many files and bytes are uploaded, where to, and what is left out.

    `config_map` is the object that holds the package; "": it is uploaded to the Ray cluster.
    """
    count = plural(len(chosen.files), "file")
    where = f" into the ConfigMap {config_map}" if config_map else ""
    lines = [
        f"Upload {count} ({bytes_text(chosen.size_bytes)}) of {one_line(str(chosen.directory))}"
        f"{where}; --dry-run lists them."
    ]
    if is_large(chosen):
        lines.append(f"That is more than {ASK_ABOVE_BYTES // 10**6} MB: .rayignore excludes data.")
    for why in Why:
        names = [one_line(item.name) for item in chosen.left_out if item.why is why]
        if names:
            more = ", …" if len(names) > NAMED else ""
            named = ", ".join(names[:NAMED])
            lines.append(f"Left out ({why}): {len(names)}: {named}{more}")
    return lines


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


def is_large(chosen: Folder) -> bool:
    """Whether it is confirmed before it is uploaded."""
    return chosen.size_bytes > ASK_ABOVE_BYTES
