"""The flags that describe a job: of `cockpit launch` and of `cockpit preflight`."""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec.structs import replace

from cockpit.cli.change import launch_environment
from cockpit.launch import settings_file, submission
from cockpit.launch.job import bundled_job, bundled_jobs
from cockpit.model.error import UsageError
from cockpit.model.recovery import FAST, PROFILES, profile


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", help="a bundled job's name: see --list")
    parser.add_argument(
        "command", nargs="*", help="after --: any command, run in a copy of this folder"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="training workers (ranks)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the job"
    )
    parser.add_argument(
        "--settings",
        metavar="FILE",
        help="settings of the job as JSON or TOML; - reads them from standard input; --set wins",
    )
    parser.add_argument(
        "--recovery",
        choices=tuple(PROFILES),
        default=FAST.name,
        help=f"the recovery profile (default {FAST.name}; see docs/recovery.md)",
    )
    launch_environment.arguments(parser)


def spec(args: argparse.Namespace) -> submission.LaunchSpec:
    """Return the submission that the flags describe. Raises UsageError."""
    return replace(_spec(args), recovery=profile(args.recovery))


def _spec(args: argparse.Namespace) -> submission.LaunchSpec:
    wants = launch_environment.given(args)
    if args.command:
        if args.set or args.settings or args.workers is not None:
            raise UsageError(
                "--set, --settings and --workers are for bundled jobs, not for a command."
            )
        command = (args.job, *args.command) if args.job else args.command
        return submission.script_spec(command, Path.cwd(), environment=wants)
    given = settings_file.read(args.settings) if args.settings else None
    name = args.job or (given.job if given else "")
    if not name:
        raise UsageError(
            "Nothing was named to launch.",
            f"Bundled jobs: {', '.join(sorted(job.name for job in bundled_jobs()))}.",
            "cockpit launch --list, or: cockpit launch -- python train.py",
        )
    settings: dict[str, str] = {}
    if given is not None:
        given.require(bundled_job(name))
        settings |= given.settings
    settings |= {key.replace("-", "_"): value for key, value in map(pair, args.set)}
    return submission.bundled_spec(name, settings, args.workers, environment=wants)


def pair(text: str, flag: str = "--set", example: str = "epochs=5") -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        pair = "KEY=VALUE" if flag == "--set" else "GROUP=N"
        raise UsageError(f"{flag} {text!r} is not {pair}.", todo=f"For example: {flag} {example}")
    return key, value
