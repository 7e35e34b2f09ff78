"""`cockpit suspend`, `cockpit unsuspend`: delete and recreate the pods of a cluster.

Not to be confused with `cockpit resume JOB`, which submits a job again.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from cockpit.actions.cluster import ClusterActions
from cockpit.cli.options import answers, confirm, connect
from cockpit.format import in_seconds, plural
from cockpit.insight.waiting.advice import owned_by_queue
from cockpit.model.cluster import ClusterHealth
from cockpit.model.error import CockpitError, ExitCode
from cockpit.store.selectors import current_run
from cockpit.store.store import Store

WAIT_S = 300.0


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    until = "no pod is left" if verb == "suspend" else "all pods are ready"
    parser.add_argument("--wait", action="store_true", help=f"wait until {until}")
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    suspended = args.verb == "suspend"
    # A suspension also ends the run: the telemetry shows which one.
    sources = ("ray", "telemetry") if suspended else ()
    with connect.session(args, sources=sources, kinds=("cluster", "pods", "rayjobs")) as session:
        confirm.require_permission(session, "suspend")
        connect.wait_for(session, ("backend", *sources))
        store = session.store
        answers.require(session, ("backend",))
        if (store.health is ClusterHealth.SUSPENDED) == suspended:
            state = "already suspended" if suspended else "not suspended"
            print(f"Cluster {session.backend.ref.name} is {state}.", file=sys.stderr)
            if args.dry_run:
                return int(ExitCode.DONE)
        else:
            uid = store.uid
            plan = _plan(store, session.backend.ref.name, suspended=suspended)
            if not confirm.confirmed(args, plan, session.backend.ref, destroys=suspended):
                return confirm.not_confirmed(args)
            session.call(ClusterActions.on(session).suspend(suspended, uid=uid))
            done = (
                "is being suspended"
                if suspended
                else "is being unsuspended: KubeRay creates its pods again"
            )
            print(f"Cluster {session.backend.ref.name} {done}.", file=sys.stderr)
        if args.wait and not session.wait(partial(_is_so, suspended=suspended), WAIT_S):
            raise CockpitError(
                f"Cluster {session.backend.ref.name} is {store.health.value} after "
                f"{in_seconds(WAIT_S)}.",
                store.health_message,
                "See why with: cockpit pods, cockpit events",
            )
    return int(ExitCode.DONE)


def _plan(store: Store, name: str, *, suspended: bool) -> list[str]:
    if not suspended:
        plan = [f"Unsuspend cluster {name}: KubeRay creates the head and the workers again."]
        return [*plan, *owned_by_queue(store, suspended=False)]
    living = sum(pod.ended_s is None for pod in store.pods.values())
    plan = [f"Suspend cluster {name}: this deletes {plural(living, 'pod')}, including the head."]
    run = current_run(store)
    if run is not None and not run.state.is_over:
        plan.append(
            f"Run {run.name or run.id} ends near step {run.step or 0}; its checkpoints remain "
            "in its storage."
        )
    alive = [job.id for job in store.jobs.values() if not job.status.is_over]
    if alive:
        plan.append(f"These jobs end: {', '.join(alive)}.")
    plan += owned_by_queue(store, suspended=True)
    plan.append("Ray's logs and list of jobs are lost.")
    plan.append("To create the pods again: cockpit unsuspend")
    return plan


def _is_so(store: Store, *, suspended: bool) -> bool:
    if suspended:
        return not any(pod.ended_s is None for pod in store.pods.values())
    return store.health is ClusterHealth.READY
