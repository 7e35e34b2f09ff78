"""Confirm changes on the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cockpit.model.cluster import ACTIONS, ClusterRef, is_protected
from cockpit.model.error import ExitCode, NotAllowedError, UsageError
from cockpit.model.text import as_sentence, one_line
from cockpit.session.session import Session

CHANGES = "changes the cluster"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="skip the confirmation")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, and change nothing")
    parser.add_argument(
        "--i-mean",
        metavar="CLUSTER",
        help="the cluster's name, required with --yes on a protected cluster",
    )


def confirmed(
    args: argparse.Namespace,
    plan: Sequence[str],
    on: ClusterRef | None = None,
    *,
    destroys: bool = False,
    does: str = CHANGES,
) -> bool:
    """Print the plan on standard error and ask for confirmation. Return whether to proceed.

    `on` is the changed cluster, printed first. `destroys`: the change deletes or stops something,
    so that --yes requires an explicit cluster, and a protected cluster requires its typed name.
    Raises NotAllowedError in read-only mode and on a protected cluster, UsageError without an
    explicit cluster or a terminal. `does` is as in `refuse_read_only`.
    """
    protected = on is not None and destroys and is_protected(on, args.protected)
    for line in [*([f"Cluster: {on.described}."] if on is not None else []), *plan]:
        print(line, file=sys.stderr)
    if protected:
        print("This cluster is protected.", file=sys.stderr)
    if args.dry_run:
        print("Dry run: nothing was changed.", file=sys.stderr)
        return False
    refuse_read_only(args, does)
    if on is not None:
        _require_meant(args, on, protected=protected)
    if args.yes:
        if on is not None and destroys:
            _require_named(args, on)
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            f"This {does} and asks for confirmation, but standard input is not a terminal.",
            todo="Add --yes to confirm, or --dry-run to print only the plan.",
        )
    if protected:
        assert on is not None
        question = f"Type the cluster's name, {one_line(on.name)}, to confirm: "
    else:
        question = "Continue? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if answer == on.name if on and protected else answer.lower() in ("y", "yes"):
        return True
    print("Nothing was changed.", file=sys.stderr)
    return False


def not_confirmed(args: argparse.Namespace) -> int:
    """The exit code where `confirmed` returned False: a dry run succeeds, a declined plan fails."""
    return int(ExitCode.DONE if args.dry_run else ExitCode.FAILED)


def _require_meant(args: argparse.Namespace, on: ClusterRef, *, protected: bool) -> None:
    """Raises UsageError for an --i-mean of another cluster, NotAllowedError where it is missing."""
    name = one_line(on.name)
    if args.i_mean is not None and args.i_mean != on.name:
        raise UsageError(
            f"--i-mean {one_line(args.i_mean)} is not the cluster of this plan, {name}.",
            todo="Name the cluster with --context, -n and --cluster.",
        )
    if protected and args.yes and args.i_mean is None:
        raise NotAllowedError(
            f"Cluster {name} is protected: --yes alone does not change it.",
            f"It is {on.described}.",
            f"Add --i-mean {name}, or leave out --yes to be asked for its name.",
        )


def _require_named(args: argparse.Namespace, on: ClusterRef) -> None:
    """Raises UsageError unless a flag, a variable or the profile names the cluster.

    A local cluster needs no name, since it belongs to this user.
    """
    if on.backend != "kuberay" or args.where.cluster:
        return
    raise UsageError(
        "--yes needs the cluster by its name: no flag, variable or profile names one.",
        f"The only one there is {on.described}.",
        f"Add: --context {one_line(on.context)} -n {one_line(on.namespace)} "
        f"--cluster {one_line(on.name)}",
    )


def answered_yes(question: str) -> bool:
    """Ask on the terminal; Enter is no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def refuse_read_only(args: argparse.Namespace, does: str = CHANGES) -> None:
    """Raises NotAllowedError in read-only mode; `does` is the reason, after the verb's name."""
    if args.read_only:
        raise NotAllowedError(
            f"cockpit {args.verb} {does}, and this is read-only mode.",
            todo="Remove --read-only, COCKPIT_READ_ONLY and the profile's read_only to allow it.",
        )


def require_permission(session: Session, verb: str) -> None:
    """Raise NotAllowedError when `capabilities` shows that this user may not do it here.

    Only Kubernetes has permissions. Other clusters report what is unavailable (the head is not
    ready, the operator has ended) when the request fails, with the fix.
    """
    if session.backend.ref.backend != "kuberay":
        return
    capability = session.call(session.backend.capabilities()).get(verb)
    if capability is None or capability.allowed:
        return
    raise NotAllowedError(
        f"You cannot {ACTIONS.get(verb, verb)}.",
        as_sentence(capability.why_not),
        "cockpit doctor lists what you may do, and how to fix what is missing.",
    )
