"""The network between pods: cut, lossy, slow or narrow, from inside a pod or by a policy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cockpit.drills.engine import pod_script
from cockpit.drills.faults.fault import (
    Aim,
    DrillContext,
    Fault,
    FaultKind,
    Order,
    Parameter,
    Prepared,
    Undo,
    Victims,
    no_way_in,
)
from cockpit.drills.faults.pods import named
from cockpit.model.cluster import NodeType
from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.store.selectors import current_run
from cockpit.store.store import Store

FOR = Parameter("for_s", 30.0, "seconds until it ends by itself")
PEERS = Parameter(
    "peers", "ranks", "affected peers: the other ranks' pods, the head's, or all pods",
    ("ranks", "head", "all"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Traffic:
    """A script in the pod, with nftables or tc. `unit` is that of the amount, in the sentence."""

    kind: FaultKind
    way: str
    amount: str
    """The parameter that says how much; empty where there is nothing to say."""
    sentence: str

    def obstacle(self, backend: str) -> str:
        if backend == "local":
            return "pods of a local cluster share the network of their machine"
        return no_way_in(backend)

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        for_s = float(order.values["for_s"])
        amount = float(order.values[self.amount]) if self.amount else 0.0
        table = re.sub(r"\W", "_", f"cockpit_{order.drill_id}")
        scope = str(order.values.get("peers", ""))
        peers = await context.ask(lambda store: _addresses(store, victims, scope)) if scope else ()
        if scope and not peers:
            raise CockpitError(f"Pod {victims.name} has no peers to block ({scope}).")
        for pod in victims.pods:
            await pod_script.run(context.backend, pod.name, "network", "check", self.way)

        async def apply() -> None:
            for pod in victims.pods:
                said = (table, self.way, f"{amount:g}", f"{for_s:g}", *peers)
                await pod_script.run(context.backend, pod.name, "network", "on", *said)

        what = self.sentence.format(amount=amount, peers=_PEERS.get(scope, ""))
        return Prepared(
            lines=tuple(f"{named(pod)}: {what}, for {for_s:g} s." for pod in victims.pods),
            apply=apply,
            undo=tuple(
                pod_script.undo(
                    f"give pod {pod.name} its network back", pod.name, "network", "off", table
                )
                for pod in victims.pods
            ),
            lasts_s=for_s,
            parameters=order.used,
        )


@dataclass(frozen=True, slots=True)
class Isolate:
    """A NetworkPolicy that lets nothing in or out, where the cluster's CNI enforces policies."""

    kind: FaultKind

    def obstacle(self, backend: str) -> str:
        return "" if backend == "kuberay" else "there are no network policies"

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        for_s = float(order.values["for_s"])
        able = (await context.backend.capabilities()).get("isolate")
        if able is not None and not able.allowed:
            raise NotAllowedError("This fault needs network policies.", able.why_not)
        names = {
            pod.name: f"cockpit-{order.drill_id}-{number}".replace(".", "-")
            for number, pod in enumerate(victims.pods)
        }

        async def apply() -> None:
            for pod, name in names.items():
                await context.backend.isolate(pod, name)

        return Prepared(
            lines=tuple(
                f"Let nothing in or out of {named(pod)} for {for_s:g} s, by a network policy."
                for pod in victims.pods
            ),
            apply=apply,
            undo=tuple(
                Undo("rejoin", f"let pod {pod} back into the network", name=name)
                for pod, name in names.items()
            ),
            lasts_s=for_s,
            parameters={"for_s": f"{for_s:g}"},
        )


def _addresses(store: Store, victims: Victims, scope: str) -> tuple[str, ...]:
    """Of those that the victims are kept from."""
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

FAULTS: dict[str, Fault] = {
    "network-partition": Traffic(
        FaultKind(
            "network-partition", "drop every packet between a pod and the others", Aim.POD,
            (PEERS, FOR), needs=("exec in the pod", "NET_ADMIN in the pod", "nft in the image"),
            undo="the packet filter is removed",
        ),
        "partition", "", "no packet to or from {peers}",
    ),
    "network-loss": Traffic(
        FaultKind(
            "network-loss", "drop a share of the packets between a pod and the others", Aim.POD,
            (Parameter("percent", 10.0, "percent of packets to drop, each way"), PEERS, FOR),
            needs=("exec in the pod", "NET_ADMIN in the pod", "nft in the image"),
            undo="all packets pass again",
        ),
        "loss", "percent", "{amount:g} % of the packets to and from {peers} are dropped",
    ),
    "network-delay": Traffic(
        FaultKind(
            "network-delay", "delay every packet that a pod sends", Aim.POD,
            (Parameter("delay_ms", 100.0, "milliseconds to delay each packet"), FOR),
            needs=("exec in the pod", "NET_ADMIN in the pod", "tc, netem or /dev/net/tun"),
            undo="the delay ends",
        ),
        "delay", "delay_ms", "every packet that it sends is {amount:g} ms late",
    ),
    "network-rate": Traffic(
        FaultKind(
            "network-rate", "limit the rate at which a pod sends", Aim.POD,
            (Parameter("rate_kbit", 10_000.0, "kilobits per second"), FOR),
            needs=("exec in the pod", "NET_ADMIN in the pod", "tc in the image"),
            undo="it sends as fast as it can",
        ),
        "rate", "rate_kbit", "it sends no more than {amount:g} kbit/s",
    ),
    "network-isolate": Isolate(
        FaultKind(
            "network-isolate", "isolate a pod by a NetworkPolicy, if the CNI enforces them",
            Aim.POD, (FOR,), needs=("network policies",), ends_by_itself=False,
            undo="the policy is removed",
        )
    ),
}  # fmt: skip
