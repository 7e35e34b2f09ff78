"""What `up` will make, and what it costs an hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from cockpit.backends.lambda_cloud.api import ALIVE, Api, Instance, Offer
from cockpit.backends.lambda_cloud.description import Cloud, Placed, Wanted
from cockpit.backends.lambda_cloud.state import State
from cockpit.format import plural
from cockpit.model.error import CockpitError, NotAllowedError, UsageError
from cockpit.model.text import one_line


class Planned(Struct, frozen=True):
    wanted: Wanted
    offer: Offer
    instance: Instance | None
    """The one that runs; `None`: it is launched."""

    @property
    def cents(self) -> int:
        return self.offer.instance_type.price_cents_per_hour

    def placed(self, address: str) -> Placed:
        specs = self.offer.instance_type.specs
        return Placed(self.wanted.name, address, specs.vcpus, specs.gpus)


class Plan(Struct, frozen=True):
    region: str
    nodes: tuple[Planned, ...]
    public_key: str
    ssh_key: str
    """The name of the account's key; empty: it is added."""
    spent: float
    """In cents, until now."""

    @property
    def launches(self) -> tuple[Planned, ...]:
        return tuple(node for node in self.nodes if node.instance is None)

    @property
    def cents_per_hour(self) -> int:
        return sum(node.cents for node in self.nodes)


def money(cents: float) -> str:
    return f"${cents / 100:,.2f}"


async def plan(api: Api, cloud: Cloud, state: State | None, now_s: float) -> Plan:
    """Check the description against the account. Changes nothing. Raises CockpitError."""
    public_key = _public_key(cloud)
    offers = await api.offers()
    running = matched(state, await api.instances()) if state else {}
    nodes = []
    for wanted in cloud.wanted:
        if wanted.type not in offers:
            raise UsageError(
                f"Lambda Cloud has no instance type {wanted.type}.",
                f"It has: {', '.join(map(one_line, sorted(offers)))}.",
                f"Change type in {cloud.path}.",
            )
        node = state.node(wanted.name) if state else None
        instance = running.get(node.name) if node else None
        alive = instance is not None and instance.status in ("booting", "active")
        nodes.append(Planned(wanted, offers[wanted.type], instance if alive else None))
    described = {wanted.name for wanted in cloud.wanted}
    left = [node.host for node in (state.alive if state else ()) if node.host not in described]
    if left:
        raise UsageError(
            f"Cluster {cloud.cluster} has instances that {cloud.path} no longer describes.",
            f"They are: {', '.join(left)}.",
            f"Delete the cluster first: cockpit down --on lambda {cloud.path}",
        )
    started = state if state and state.alive else None
    region = started.region if started else _region(cloud, nodes)
    await _require_file_system(api, cloud, region)
    made = Plan(
        region,
        tuple(nodes),
        public_key,
        next((k.name for k in await api.ssh_keys() if _body(k.public_key) == public_key), ""),
        state.spent(now_s) if state else 0.0,
    )
    _require_limits(cloud, made)
    return made


def matched(state: State, instances: Sequence[Instance]) -> dict[str, Instance]:
    """By the node's name, its instance: by its id, else by its name. One that ended is left out."""
    there = [instance for instance in instances if instance.status in ALIVE]
    by_id = {instance.id: instance for instance in there}
    by_name = {instance.name: instance for instance in there}
    found = {n.name: by_id.get(n.id) or by_name.get(n.name) for n in state.alive}
    return {name: instance for name, instance in found.items() if instance is not None}


def lines(cloud: Cloud, planned: Plan, steps: Sequence[str]) -> list[str]:
    """The plan as text."""
    said = []
    for node in planned.nodes:
        kind = node.offer.instance_type
        if node.instance is None:
            what = f"Launch {node.wanted.name} in {planned.region}"
        else:
            what = f"Keep {node.wanted.name} ({one_line(node.instance.status)})"
        gpus = plural(kind.specs.gpus, "GPU") if kind.specs.gpus else "no GPU"
        specs = f"{gpus}, {kind.specs.vcpus} CPUs, {kind.specs.memory_gib} GiB"
        said.append(f"{what}: {kind.name} ({specs}), {money(node.cents)} an hour.")
    if not planned.ssh_key:
        said.append(f"Add the SSH key {cloud.ssh_key}.pub to the account.")
    if cloud.allow_ssh_from:
        said.append(f"Allow SSH from {', '.join(cloud.allow_ssh_from)} by a firewall ruleset.")
    if cloud.file_system:
        said.append(f"Mount file system {cloud.file_system} on each instance.")
    said += [f"On each instance: {step}." for step in steps]
    said.append(f"Cost: {money(planned.cents_per_hour)} an hour for {_instances(planned)}.")
    if planned.spent:
        said.append(f"Spent until now: {money(planned.spent)}.")
    limits = cloud.spending
    if limits.max_total is not None:
        said.append(f"Limit: {money(limits.max_total)} in total; then the instances end.")
    if limits.idle_s is not None:
        then = "they end" if limits.ends_idle else "it is reported"
        said.append(f"After {limits.idle_s / 60:g} minutes without a job, {then}.")
    return said


def _instances(planned: Plan) -> str:
    return plural(len(planned.nodes), "instance")


def _region(cloud: Cloud, nodes: Sequence[Planned]) -> str:
    """The first of the description's regions that has capacity for all types."""
    for region in cloud.regions:
        if all(region in node.offer.regions for node in nodes):
            return region
    types = {node.wanted.type: node.offer.regions for node in nodes}
    raise no_capacity(cloud, types)


def no_capacity(cloud: Cloud, types: Mapping[str, Sequence[str]]) -> CockpitError:
    """`types`: by type, the regions that have capacity."""
    where = "; ".join(
        f"{name}: {', '.join(map(one_line, regions)) or 'nowhere now'}"
        for name, regions in types.items()
    )
    return CockpitError(
        f"Lambda Cloud has no capacity for this cluster in {' or '.join(cloud.regions)}.",
        f"Regions with capacity: {where}.",
        f"Try again later, or add a region or change a type in {cloud.path}.",
    )


async def _require_file_system(api: Api, cloud: Cloud, region: str) -> None:
    if not cloud.file_system:
        return
    found = await api.file_systems()
    if not any(fs.name == cloud.file_system and fs.region.name == region for fs in found):
        there = ", ".join(f"{one_line(fs.name)} in {one_line(fs.region.name)}" for fs in found)
        raise UsageError(
            f"There is no file system {cloud.file_system} in {region}.",
            f"The account has: {there or 'none'}.",
            "Make it on the account's page; cockpit makes and deletes no file system.",
        )


def _require_limits(cloud: Cloud, planned: Plan) -> None:
    limits = cloud.spending
    for node in planned.launches:
        if node.wanted.max_cents is not None and node.cents > node.wanted.max_cents:
            raise NotAllowedError(
                f"{node.wanted.type} costs {money(node.cents)} an hour.",
                f"max_per_hour of {node.wanted.name} is {money(node.wanted.max_cents)}.",
                f"Change one of them in {cloud.path}.",
            )
    if limits.max_per_hour is not None and planned.cents_per_hour > limits.max_per_hour:
        raise NotAllowedError(
            f"The cluster costs {money(planned.cents_per_hour)} an hour.",
            f"max_per_hour under [spending] is {money(limits.max_per_hour)}.",
            f"Change the instances or the limit in {cloud.path}.",
        )
    if limits.max_total is not None and planned.launches and planned.spent >= limits.max_total:
        raise NotAllowedError(
            f"The cluster has cost {money(planned.spent)}.",
            f"max_total under [spending] is {money(limits.max_total)}.",
            f"Raise it in {cloud.path}, or delete the cluster: cockpit down --on lambda "
            f"{cloud.path}",
        )


def _public_key(cloud: Cloud) -> str:
    path = Path(f"{cloud.ssh_key}.pub")
    try:
        key = _body(path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(
            f"The public key {path} cannot be read.",
            why or str(error),
            "ssh_key under [lambda] names the private key; ssh-keygen makes both.",
        ) from error
    if not key:
        raise UsageError(f"{path} is not a public key of OpenSSH.")
    return key


def _body(public_key: str) -> str:
    """Without the comment; empty for what is not a public key."""
    words = public_key.split()
    return " ".join(words[:2]) if len(words) >= 2 else ""
