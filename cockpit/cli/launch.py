"""`cockpit launch JOB`, `cockpit launch -- COMMAND`, `cockpit launch --list`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cockpit.actions import ClusterActions
from cockpit.backends.protocol import Backend
from cockpit.cli import confirm, connect, output
from cockpit.cli.logs import follow_job
from cockpit.launch import submission
from cockpit.launch.catalogue import bundled_jobs
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.run import JobStatus
from cockpit.sources.dashboard import Dashboard


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("job", nargs="?", help="a bundled job's name: see --list")
    parser.add_argument(
        "command", nargs="*", help="after --: any command, run in a copy of this folder"
    )
    parser.add_argument("--list", action="store_true", help="the bundled jobs and their settings")
    parser.add_argument("--workers", type=int, metavar="N", help="training workers (ranks)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the job"
    )
    parser.add_argument("--follow", "-f", action="store_true", help="print its log until it ends")
    confirm.arguments(parser)
    output.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        return _list(args)
    spec = _spec(args)
    backend = connect.backend(args)
    if not _confirmed(args, backend, spec):
        return int(ExitCode.DONE)
    import asyncio

    return asyncio.run(_launch(args, backend, spec))


def _confirmed(args: argparse.Namespace, backend: Backend, spec: submission.LaunchSpec) -> bool:
    """Launching takes nothing away, so it does not ask; it says what it does."""
    args.yes = True
    return confirm.confirmed(args, [f"Launch {spec.command} on {backend.ref}."])


async def _launch(args: argparse.Namespace, backend: Backend, spec: submission.LaunchSpec) -> int:
    job = await ClusterActions(backend).submit(spec)
    if args.output == "table":
        print(job.id, flush=True)
    else:
        output.print_json({"name": job.id, "status": job.status, "entrypoint": job.entrypoint})
    if not args.follow:
        return int(ExitCode.DONE)
    async with Dashboard(backend.dashboard) as dashboard:
        await follow_job(dashboard, job.id)
        ended = await dashboard.job(job.id)
    print(f"Job {ended.id} is {ended.status.value}.", file=sys.stderr)
    return int(ExitCode.DONE if ended.status is JobStatus.SUCCEEDED else ExitCode.FAILED)


def _spec(args: argparse.Namespace) -> submission.LaunchSpec:
    settings = dict(_pair(text) for text in args.set)
    bundled = {job.name for job in bundled_jobs()}
    if args.job is None:
        raise UsageError(
            "Nothing was named to launch.",
            f"Bundled jobs: {', '.join(sorted(bundled))}.",
            "cockpit launch --list, or: cockpit launch -- python train.py",
        )
    if args.command or (args.job not in bundled and "--" in sys.argv):
        if settings or args.workers:
            raise UsageError("--set and --workers are for bundled jobs, not for a command.")
        return submission.script_spec((args.job, *args.command), Path.cwd())
    return submission.bundled_spec(args.job, settings, args.workers)


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(f"--set {text!r} is not KEY=VALUE.", todo="For example: --set epochs=5")
    return key, value


def _list(args: argparse.Namespace) -> int:
    rows = [output.as_json(job) for job in bundled_jobs()]
    if args.output != "table":
        output.print_rows(rows, (), args.output)
        return int(ExitCode.DONE)
    for row in rows:
        print(f"{row['name']}: {row['summary']}")
        settings = [
            {"setting": s["name"], "default": s["default"], "what": s["help"]}
            for s in row["settings"]
        ]
        output.print_table(settings, ("setting", "default", "what"))
    return int(ExitCode.DONE)
