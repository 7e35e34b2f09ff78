"""`cockpit plan|up|down|status --on lambda FILE`."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cockpit.actions import audit
from cockpit.backends.lambda_cloud import (
    cluster,
    description,
    instances,
    plan,
    ray_up,
    setup,
    spending,
    state,
)
from cockpit.backends.lambda_cloud.api import Api, settings
from cockpit.backends.lambda_cloud.description import Cloud
from cockpit.backends.lambda_cloud.instances import Removed
from cockpit.backends.lambda_cloud.plan import Plan, money
from cockpit.backends.lambda_cloud.state import State, Store
from cockpit.cli.cluster.hosts import file_of
from cockpit.cli.options import confirm
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.format import plural
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError, ExitCode, UnreachableError, UsageError
from cockpit.model.recovery import FAST
from cockpit.model.text import one_line

T = TypeVar("T")
LOCK_S = 5.0
"""How long a spending guard that was stopped may take to end."""


def show(args: argparse.Namespace) -> int:
    """`cockpit plan`: what `up` would make. Changes nothing."""
    cloud = _described(args)
    if args.output == "ray-up":
        found = state.load(cloud.cluster)
        head = found.node("head") if found else None
        hosts = description.hosts_of(cloud.path)
        print(ray_up.text(hosts, cloud.ssh_key, head.ip if head else ""), end="")
        return int(ExitCode.DONE)
    planned = _planned(cloud)
    if args.output == "json":
        tables.print_json(_as_json(cloud, planned))
    else:
        for line in _lines(cloud, planned):
            print(line)
    return int(ExitCode.DONE)


def start(args: argparse.Namespace) -> int:
    cloud = _described(args)
    ref = _ref(cloud)
    confirm.refuse_read_only(args)
    planned = _planned(cloud)
    lines = _lines(cloud, planned)
    if args.dry_run or (planned.launches and planned.cents_per_hour > cloud.spending.confirm_above):
        if not confirm.confirmed(args, lines, ref):
            return confirm.not_confirmed(args)
    else:
        for line in lines:
            log(line)
    what = f"{plural(len(planned.nodes), 'instance')}, {money(planned.cents_per_hour)} an hour"

    async def make(api: Api, store: Store) -> None:
        # The account may have changed while the plan was read.
        newest = await plan.plan(api, cloud, store.state, time.time())
        if newest.cents_per_hour > planned.cents_per_hour or newest.region != planned.region:
            raise CockpitError(
                "The plan has changed since it was shown.",
                f"Now: {newest.region}, {money(newest.cents_per_hour)} an hour.",
                "Run the command again.",
            )
        instances.record(cloud, newest, store)
        spending.start(cloud)
        await cluster.up(api, cloud, newest, store, FAST.name, args.timeout, log)

    with audit.recorded("up", ref, cloud.cluster, after=what):
        _changed(cloud, make)
        (state.folder(cloud.cluster) / "ended").unlink(missing_ok=True)
    log(
        f"Cluster {cloud.cluster} is up, for {money(planned.cents_per_hour)} an hour. "
        f"Open it with: cockpit --hosts {cloud.path}"
    )
    return int(ExitCode.DONE)


def stop(args: argparse.Namespace) -> int:
    cloud = _described(args)
    ref = _ref(cloud)
    found = state.load(cloud.cluster)
    if found is None:
        raise UnreachableError(
            f"There is no record of instances of cluster {cloud.cluster} on this host.",
            _ended(cloud) or f"It would be in {state.folder(cloud.cluster)}.",
            "Terminate instances that another host launched on that host, or in the Lambda Cloud "
            "console.",
        )
    _require_same(cloud, found)
    names = ", ".join(node.host for node in found.alive) or "no instance"
    others = ", ".join(filter(None, (found.ssh_key and "SSH key", found.ruleset and "ruleset")))
    lines = [
        f"Terminate the instances of cluster {cloud.cluster}: {names}. Files on them are lost.",
        *([f"Remove from the account: {others}."] if others else []),
        *([f"Keep file system {found.file_system}."] if found.file_system else []),
    ]
    if not confirm.confirmed(args, lines, ref, destroys=True):
        return confirm.not_confirmed(args)
    guard = spending.process_of(cloud.cluster)

    async def remove(api: Api, store: Store) -> Removed:
        return await cluster.down(api, store, args.timeout, log)

    with audit.recorded("down", ref, cloud.cluster) as line:
        removed = _changed(cloud, remove)
        line["before"] = f"{removed.instances} instances"
    if guard is not None:  # not before: if this command fails, the limits still apply
        spending.stop(guard)
    ended = [plural(removed.instances, "instance"), *removed.others]
    log(
        f"Deleted {', '.join(ended)}. The account no longer lists any resource of cluster "
        f"{cloud.cluster}. It has cost about {money(removed.cents)}."
    )
    return int(ExitCode.DONE)


def status(args: argparse.Namespace) -> int:
    """The instances of the record and of the account, and the money."""
    cloud = _described(args)
    found = state.load(cloud.cluster)
    if found is None:
        log(_ended(cloud) or f"Cluster {cloud.cluster} has no instances.")
        if args.output == "table":
            return int(ExitCode.DONE)
        found = State(cloud.cluster, cloud.path, region="")
    alive = found.alive
    running = plan.matched(found, _asked(cloud, lambda api: api.instances())) if alive else {}
    now_s = time.time()
    rows = [
        {
            "name": node.host,
            "status": one_line(running[node.name].status) if node.name in running else "missing",
            "type": node.type,
            "address": node.address,
            "dollars_per_hour": node.cents / 100,
            "dollars": round(node.cost(now_s) / 100, 2),
        }
        for node in alive
    ]
    if args.output != "table":
        spent = {"dollars_per_hour": found.cents_per_hour / 100}
        spent["dollars"] = round(found.spent(now_s) / 100, 2)
        tables.print_object(
            {"name": cloud.cluster, "region": found.region, "instances": rows, **spent}
            | {"guard": spending.runs(cloud.cluster), "notice": found.notice},
            args.output,
        )
        return int(ExitCode.DONE)
    tables.print_rows(rows, list(rows[0]) if rows else [], "table", empty="No instances.")
    print(f"{money(found.cents_per_hour)} an hour; {money(found.spent(now_s))} so far.")
    if cloud.spending.max_total is not None or cloud.spending.idle_s is not None:
        print(
            "The spending guard "
            f"{'is running' if spending.runs(cloud.cluster) else 'is not running'}."
        )
    if found.notice:
        print(f"Attention: {found.notice}. To end it: cockpit down --on lambda {cloud.path}")
    return int(ExitCode.DONE)


def _described(args: argparse.Namespace) -> Cloud:
    return description.read(file_of(args, "lambda", "the cluster", "cluster.toml"))


def _planned(cloud: Cloud) -> Plan:
    found = state.load(cloud.cluster)
    if found is not None:
        _require_same(cloud, found)
    return _asked(cloud, lambda api: plan.plan(api, cloud, found, time.time()))


def _require_same(cloud: Cloud, found: State) -> None:
    if found.description != cloud.path:
        raise UsageError(
            f"Cluster {cloud.cluster} was made from another file, {found.description}.",
            f"{cloud.path} has the same name for its cluster.",
            "Use that file, or change the value of cluster in this one.",
        )


def _asked(cloud: Cloud, ask: Callable[[Api], Awaitable[T]]) -> T:
    async def asked() -> T:
        api = Api(settings(cloud.api_key_file))
        try:
            return await ask(api)
        finally:
            await api.aclose()

    return asyncio.run(asked())


def _changed(cloud: Cloud, change: Callable[[Api, Store], Awaitable[T]]) -> T:
    with state.locked(cloud.cluster, LOCK_S) as store:
        return _asked(cloud, lambda api: change(api, store))


def _lines(cloud: Cloud, planned: Plan) -> list[str]:
    gpus = any(node.offer.instance_type.specs.gpus for node in planned.nodes)
    steps = [step.what for step in setup.steps(cloud) if gpus or not step.needs_gpu]
    return plan.lines(cloud, planned, steps)


def _as_json(cloud: Cloud, planned: Plan) -> dict[str, object]:
    return {
        "name": cloud.cluster,
        "region": planned.region,
        "instances": [
            {
                "name": node.wanted.name,
                "group": node.wanted.group,
                "type": node.wanted.type,
                "dollars_per_hour": node.cents / 100,
                "step": "keep" if node.instance else "launch",
            }
            for node in planned.nodes
        ],
        "steps": [step.what for step in setup.steps(cloud)],
        "dollars_per_hour": planned.cents_per_hour / 100,
        "dollars": round(planned.spent / 100, 2),
    }


def _ended(cloud: Cloud) -> str:
    """What the spending guard has left, if it ended the cluster."""
    try:
        return (state.folder(cloud.cluster) / "ended").read_text()
    except FileNotFoundError:
        return ""


def _ref(cloud: Cloud) -> ClusterRef:
    return ClusterRef("ssh", cloud.cluster, context=cloud.path)
