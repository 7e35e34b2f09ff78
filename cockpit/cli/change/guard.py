"""`cockpit guard [RUN]`: act on hangs and repeated failures, by a policy."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable

from msgspec.structs import replace

from cockpit.actions.guard import Guard
from cockpit.actions.guard_acts import GuardActions
from cockpit.cli.drill.progress import POLL_S
from cockpit.cli.options import confirm, connect
from cockpit.cli.output.signals import ended_by_a_signal
from cockpit.cli.output.streams import log
from cockpit.config import file
from cockpit.drills.faults import catalog
from cockpit.drills.plan.plan import parse_blast_radius
from cockpit.guard import settings
from cockpit.guard.policy import ACTIONS, Action, Policy, Trigger
from cockpit.model.error import ExitCode, UsageError
from cockpit.session import monitored
from cockpit.session.session import Session
from cockpit.store.run import RunView
from cockpit.store.store import Store

RIGHTS = {Action.RESTART: "exec", Action.REPLACE: "delete_pod", Action.CORDON: "cordon"}
"""The capability that an action requires, as in `Backend.capabilities`."""
_FAULTS = {Action.RESTART: "rank-kill", Action.REPLACE: "pod-kill"}


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "Follow the cluster, and act when a run hangs or its attempts fail repeatedly, as "
        "[guard] in the configuration and the flags define. The default is to observe. The whole "
        "policy is printed and confirmed once. Ctrl-C ends it."
    )
    parser.add_argument(
        "run", nargs="?", default="", metavar="RUN", help="only this run, by id or name"
    )
    parser.add_argument(
        "--action",
        choices=[action.value for action in ACTIONS[Trigger.HANG]],
        help="what to do on a hang",
    )
    parser.add_argument(
        "--on-failures",
        choices=[action.value for action in ACTIONS[Trigger.REPEATED_FAILURE]],
        help="what to do after repeated failures of a run",
    )
    parser.add_argument(
        "--failures",
        type=int,
        metavar="N",
        help="the number of failures within an hour that counts as repeated",
    )
    parser.add_argument(
        "--budget", type=int, metavar="N", help="maximum number of changes to the cluster per hour"
    )
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    backend = connect.backend(args)
    policy = policy_of(args).on(backend.ref, args.protected, read_only=args.read_only)
    with monitored.monitored_session_on(backend) as session:
        connect.wait_for(session, ("backend", "ray", "telemetry"), connect.TARGET_SETTLE_S)
        if not confirmed(args, session, policy):
            return confirm.not_confirmed(args)
        guard = guard_on(session, policy, args.run)
        watching = session.submit(guard.watch())
        log(f"{time.strftime('%H:%M:%S')} following {args.run or 'all runs'}")
        if args.run and not _named(session.store, args.run):
            there = ", ".join(run.name or run.id for run in session.store.runs.values())
            log(f"Waiting for run {args.run!r}. Available: {there or 'none'}.")
        with ended_by_a_signal(guard.end):
            while not watching.done():
                session.wait(lambda store: watching.done(), POLL_S)
                if _is_over(session.store, args.run):
                    guard.end()
        watching.result()
    return int(ExitCode.DONE)


def policy_of(args: argparse.Namespace) -> Policy:
    """From the flags over the profile over `[guard]`. Raises UsageError."""
    table = dict(file.read().named(args.profile).guard)
    flags = {"hang": "action", "repeated_failure": "on_failures"}
    flags |= {"failures": "failures", "budget": "budget"}
    for flag in ("failures", "budget"):
        if (number := getattr(args, flag, None)) is not None and number < 1:
            raise UsageError(f"--{flag} must be 1 or more.")
    given = {key: getattr(args, flag, None) for key, flag in flags.items()}
    table |= {key: value for key, value in given.items() if value is not None}
    policy = settings.parse(table)
    return replace(policy, dry_run=policy.dry_run or args.dry_run)


def confirmed(args: argparse.Namespace, session: Session, policy: Policy) -> bool:
    """Print the policy, and ask for confirmation if it may change the cluster.

    Raises as `confirm.confirmed`, and UsageError or NotAllowedError for an action that is not
    available here.
    """
    ref = session.backend.ref
    if policy.changes:
        for action in (policy.hang, policy.repeated_failure):
            _require_available(session, action)
        return confirm.confirmed(args, policy.lines, ref, destroys=True)
    lines: Iterable[str] = (f"Cluster: {ref.described}.", *policy.lines)
    for line in lines:
        print(line, file=sys.stderr)
    if policy.dry_run:
        print("Dry run: changes are only reported.", file=sys.stderr)
    return True


def guard_on(session: Session, policy: Policy, run: str) -> Guard:
    limits = parse_blast_radius(file.read().tables.get("drills", {}))
    actions = GuardActions(session, monitored.prober_on(session), limits)

    def report(line: str) -> None:
        log(f"{time.strftime('%H:%M:%S')} {line}")

    return Guard(session, actions, policy, report, run=run)


def _require_available(session: Session, action: Action) -> None:
    kind = session.backend.ref.backend
    why = catalog.fault(_FAULTS[action]).obstacle(kind) if action in _FAULTS else ""
    if action is Action.CORDON and kind != "kuberay":
        why = "it has no Kubernetes nodes"
    if why:
        raise UsageError(f"There is no {action.value} on this cluster: {why}.")
    if action in RIGHTS:
        confirm.require_permission(session, RIGHTS[action])


def _named(store: Store, wanted: str) -> list[RunView]:
    return [run for run in store.runs.values() if wanted in (run.id, run.name, run.submission_id)]


def _is_over(store: Store, wanted: str) -> bool:
    """Whether the run that was named has ended."""
    runs = _named(store, wanted)
    return bool(wanted and runs) and all(run.state.is_over for run in runs)
