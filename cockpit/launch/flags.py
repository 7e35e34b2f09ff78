"""The flags of a launch: of `cockpit launch`, `cockpit preflight` and the launch dialog."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from cockpit.config.repeatable_flag import repeatable
from cockpit.launch import environment_flags, settings_file, submission
from cockpit.launch.job import bundled_job, bundled_jobs
from cockpit.launch.rayjob import RayJobOptions
from cockpit.launch.submission import LaunchSpec
from cockpit.model.error import UsageError
from cockpit.model.recovery import FAST, PROFILES, profile
from cockpit.model.text import one_line

COMMAND = "--"
"""Before a command."""


class Launchable(Struct, frozen=True):
    """A job to submit, and the options of its RayJob; None: over HTTP."""

    spec: LaunchSpec
    options: RayJobOptions | None = None


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", help="a bundled job's name: see --list")
    parser.add_argument(
        "command", nargs="*", help="after --: any command, run in a copy of this folder"
    )
    parser.set_defaults(after_dashes=False)
    parser.add_argument("--workers", type=int, metavar="N", help="training workers (ranks)")
    repeatable(parser, "--set", "KEY=VALUE", "a setting of the job")
    parser.add_argument(
        "--settings",
        metavar="FILE",
        help="settings of the job as JSON or TOML; - is standard input; --set overrides them",
    )
    _recovery(parser)
    environment_flags.arguments(parser)


def _recovery(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recovery",
        choices=tuple(PROFILES),
        default=FAST.name,
        help=f"the recovery profile (default {FAST.name}; see docs/recovery.md)",
    )


def of_new_cluster(parser: argparse._ActionsContainer) -> None:
    """The flags of a cluster that is created for the job."""
    parser.add_argument(
        "--own-cluster",
        action="store_true",
        help="RayJob: run on a new cluster, a copy of this one",
    )
    repeatable(
        parser, "--replicas", "GROUP=N", "RayJob: replicas of a worker group of its own cluster"
    )
    parser.add_argument(
        "--image", default="", metavar="IMAGE", help="RayJob: the image of its own cluster's pods"
    )
    parser.add_argument(
        "--queue",
        default="",
        metavar="NAME",
        help="RayJob: its own cluster waits in this LocalQueue of Kueue, or volcano:NAME",
    )


def of_rayjob(parser: argparse._ActionsContainer) -> None:
    """The flags of a RayJob, with those of its own cluster."""
    of_new_cluster(parser)
    parser.add_argument(
        "--ttl",
        type=int,
        metavar="S",
        help="RayJob: delete its own cluster S seconds after the end",
    )
    parser.add_argument(
        "--deadline", type=int, metavar="S", help="RayJob: stop the job after S seconds"
    )
    parser.add_argument(
        "--retries", type=int, default=0, metavar="N", help="RayJob: number of retries"
    )


def spec(args: argparse.Namespace) -> LaunchSpec:
    """Return the submission that the flags describe. Raises UsageError."""
    return replace(_spec(args), recovery=profile(args.recovery))


def _spec(args: argparse.Namespace) -> LaunchSpec:
    wants = environment_flags.given(args)
    if args.command:
        if args.job and args.after_dashes:
            raise UsageError(
                f"{args.job} and a command after -- cannot be launched together.",
                todo="Leave out one of them.",
            )
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
            "cockpit launch needs a job or a command.",
            f"Bundled jobs: {', '.join(sorted(job.name for job in bundled_jobs()))}.",
            "cockpit launch --list, or: cockpit launch -- python train.py",
        )
    settings: dict[str, str] = {}
    if given is not None:
        given.require(bundled_job(name))
        settings |= given.settings
    settings |= {key.replace("-", "_"): value for key, value in map(pair, args.set)}
    return submission.bundled_spec(name, settings, args.workers, environment=wants)


def options(args: argparse.Namespace) -> RayJobOptions | None:
    """None for a job over HTTP. UsageError for flags that are a RayJob's alone."""
    given = RayJobOptions(
        args.own_cluster,
        replicas(args),
        args.image,
        args.ttl,
        args.deadline,
        args.retries,
        args.queue,
    )
    if args.via == "rayjob":
        own = {"--replicas": given.replicas, "--image": args.image, "--queue": args.queue}
        flag = next((name for name, value in own.items() if value), "")
        flag = flag or ("--ttl" if args.ttl is not None else "")
        if flag and not given.own_cluster:
            raise UsageError(
                f"{flag} requires --own-cluster.",
                "The current cluster is not changed.",
                "Add --own-cluster, or scale this one: cockpit scale GROUP N",
            )
        if args.retries and not given.own_cluster:
            raise UsageError(
                "--retries requires --own-cluster.",
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


def replicas(args: argparse.Namespace) -> dict[str, int]:
    """By worker group, of the new cluster. Raises UsageError."""
    return dict(_number_of(text) for text in args.replicas)


def pair(text: str, flag: str = "--set", example: str = "epochs=5") -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        pair = "KEY=VALUE" if flag == "--set" else "GROUP=N"
        raise UsageError(f"{flag} {text!r} is not {pair}.", todo=f"For example: {flag} {example}")
    return key, value


def _number_of(text: str) -> tuple[str, int]:
    group, number = pair(text, "--replicas", "gpu=2")
    if not number.isdecimal():
        raise UsageError(f"--replicas {text!r} is not GROUP=N.", todo="For example: gpu=2")
    return group, int(number)


# -- the line of flags in the launch dialog


class _Line(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{one_line(message, 200)}.", "They are the flags of: cockpit launch")


def of_line(line: str, name: str, settings: Mapping[str, str], via: str) -> Launchable:
    """A bundled job with its settings and a line of flags, or the command after ` -- ` in it.

    `name` is empty for a command. `--own-cluster` selects a RayJob. Raises UsageError.
    """
    parts, command = split(line)
    parser = _Line(prog="launch", add_help=False, allow_abbrev=False)
    _recovery(parser)
    environment_flags.arguments(parser)
    of_rayjob(parser)
    args = parser.parse_args(parts)
    args.via = "rayjob" if args.own_cluster else via
    wants = environment_flags.given(args)
    if command and name:
        raise UsageError(
            f"{name} and a command after -- cannot be launched together.",
            todo="Return to the list of jobs to launch the command.",
        )
    made = (
        submission.script_spec(command, Path.cwd(), environment=wants)
        if not name
        else submission.bundled_spec(name, settings, environment=wants)
    )
    return Launchable(replace(made, recovery=profile(args.recovery)), options(args))


def split(line: str) -> tuple[list[str], tuple[str, ...]]:
    """The flags, and the command after `--`. Raises UsageError for an open quotation mark."""
    try:
        parts = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"The flags cannot be read: {error}.") from error
    if COMMAND not in parts:
        return parts, ()
    at = parts.index(COMMAND)
    return parts[:at], tuple(parts[at + 1 :])
