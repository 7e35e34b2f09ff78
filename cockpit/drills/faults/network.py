"""The network between pods: cut, lossy, slow or narrow, from inside a pod or by a policy."""

from __future__ import annotations

import re
from functools import partial

from cockpit.drills.engine import pod_script
from cockpit.drills.faults.fault import (
    NO_EXEC,
    Aim,
    DrillContext,
    Fault,
    Order,
    Parameter,
    Prepared,
    Undo,
    Victims,
)
from cockpit.drills.faults.pods import named
from cockpit.format import in_seconds
from cockpit.model.cluster import NodeType
from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.store.selectors import current_run
from cockpit.store.store import Store

FOR = Parameter("for_s", 30.0, "duration of the fault in seconds")
PEERS = Parameter(
    "peers", "ranks", "pods of the other ranks (ranks), the head pod (head), or all pods (all)",
    ("ranks", "head", "all"),
)  # fmt: skip


NO_NETWORK = NO_EXEC | {
    "local": "pods of a local cluster share the network of this machine",
    "ssh": "a pod has the network of its host, and so has the connection to it",
}


async def traffic(
    context: DrillContext,
    victims: Victims,
    order: Order,
    *,
    way: str,
    sentence: str,
    amount_of: str = "",
) -> Prepared:
    """Change the packets of the pods by a script in each, with nftables or tc.

    `amount_of`: the parameter that is shown as the amount; empty without one.
    """
    for_s = float(order.values["for_s"])
    amount = float(order.values[amount_of]) if amount_of else 0.0
    table = re.sub(r"\W", "_", f"cockpit_{order.drill_id}")
    scope = str(order.values.get("peers", ""))
    peers = await context.ask(lambda store: _addresses(store, victims, scope)) if scope else ()
    if scope and not peers:
        raise CockpitError(f"Pod {victims.name} has no peers to block ({scope}).")
    for pod in victims.pods:
        await pod_script.run(context.backend, pod.name, "network", "check", way)
    what = sentence.format(amount=amount, peers=_PEERS.get(scope, ""))
    on = ("network", "on", table, way, f"{amount:g}", f"{for_s:g}", *peers)
    off = ("network", "off", table)
    return pod_script.prepared(
        context,
        order,
        (f"{named(pod)}: {what}, for {in_seconds(for_s)}." for pod in victims.pods),
        ((pod.name, *on) for pod in victims.pods),
        (
            pod_script.undo(f"restore the network of pod {pod.name}", pod.name, *off)
            for pod in victims.pods
        ),
        for_s,
    )


async def isolate(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """A NetworkPolicy that lets nothing in or out, where the cluster's CNI enforces policies."""
    for_s = float(order.values["for_s"])
    able = (await context.backend.capabilities()).get("isolate")
    if able is not None and not able.allowed:
        raise NotAllowedError("This fault needs network policies.", able.why_not)
    names = {
        pod.name: f"cockpit-{order.drill_id}-{number}".replace(".", "-")
        for number, pod in enumerate(victims.pods)
    }

    async def apply() -> None:
        for pod in victims.pods:
            await context.backend.isolate(pod.name, names[pod.name], uid=pod.uid)

    return Prepared(
        lines=tuple(
            f"Block all traffic of {named(pod)} for {in_seconds(for_s)} with a NetworkPolicy."
            for pod in victims.pods
        ),
        apply=apply,
        undo=tuple(
            Undo("rejoin", f"delete the NetworkPolicy that isolates pod {pod}", name=name)
            for pod, name in names.items()
        ),
        lasts_s=for_s,
        parameters={"for_s": f"{for_s:g}"},
    )


def _addresses(store: Store, victims: Victims, scope: str) -> tuple[str, ...]:
    """Addresses that the victims are cut off from."""
    own = {pod.ip for pod in victims.pods}
    if scope == "ranks":
        run = current_run(store)
        placed = run.attempt.placements if run is not None and run.attempt is not None else ()
        found = [placement.node_ip for placement in placed]
    else:
        found = [
            pod.ip
            for pod in store.pods.values()
            if scope == "all" or pod.node_type is NodeType.HEAD
        ]
    return tuple(sorted({ip for ip in found if ip and ip not in own}))


_PEERS = {"ranks": "the other ranks", "head": "the head", "all": "all other pods"}

NFT = ("exec in the pod", "NET_ADMIN in the pod", "nft in the image")

FAULTS = (
    Fault(
        "network-partition", "drop all packets between a pod and its peers", Aim.POD,
        partial(traffic, way="partition", sentence="no packet to or from {peers}"),
        (PEERS, FOR), needs=NFT, undo="the packet filter is removed after for_s",
        unavailable=NO_NETWORK,
    ),
    Fault(
        "network-loss", "drop a percentage of the packets between a pod and its peers", Aim.POD,
        partial(
            traffic, way="loss", amount_of="percent",
            sentence="{amount:g} % of the packets to and from {peers} are dropped",
        ),
        (Parameter("percent", 10.0, "percentage of packets to drop in each direction"), PEERS, FOR),
        needs=NFT, undo="the packet filter is removed after for_s", unavailable=NO_NETWORK,
    ),
    Fault(
        "network-delay", "delay every packet that a pod sends", Aim.POD,
        partial(
            traffic, way="delay", amount_of="delay_ms",
            sentence="every packet that it sends is {amount:g} ms late",
        ),
        (Parameter("delay_ms", 100.0, "delay of each packet in milliseconds"), FOR),
        needs=(
            "exec in the pod", "NET_ADMIN in the pod", "tc in the image", "netem or /dev/net/tun",
        ),
        undo="the delay is removed after for_s", unavailable=NO_NETWORK,
    ),
    Fault(
        "network-rate", "limit the bandwidth with which a pod sends", Aim.POD,
        partial(
            traffic, way="rate", amount_of="rate_kbit",
            sentence="it sends no more than {amount:g} kbit/s",
        ),
        (Parameter("rate_kbit", 10_000.0, "limit in kilobits per second"), FOR),
        needs=("exec in the pod", "NET_ADMIN in the pod", "tc in the image"),
        undo="the limit is removed after for_s", unavailable=NO_NETWORK,
    ),
    Fault(
        "network-isolate", "block all traffic of a pod with a NetworkPolicy",
        Aim.POD, isolate, (FOR,),
        needs=("create network policies", "a CNI that enforces them"), ends_by_itself=False,
        undo="the policy is deleted after for_s",
        unavailable=dict.fromkeys(("local", "address", "ssh"), "there are no network policies"),
    ),
)  # fmt: skip
