"""The Lease of a drill on Kubernetes: at most one drill per cluster.

As in client-go's leader election, a lease has expired once it was observed unchanged for its
duration: clocks of nodes may differ. `cockpit.drills.engine.lease` observes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cockpit.backends.kuberay.api.client import KubeClient, KubeError
from cockpit.backends.kuberay.api.fields import mapping, text, whole
from cockpit.backends.kuberay.resources import objects
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import LeaseHeldError
from cockpit.model.text import one_line

RELEASE_TRIES = 3
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
SKEW = timedelta(seconds=5)
"""A renewal that is further in the future than this was written by another clock."""


async def hold(
    client: KubeClient, ref: ClusterRef, holder: str, ttl_s: float, expired: str = ""
) -> None:
    """The Lease `CLUSTER-drill`, taken or renewed. As `Backend.hold`."""
    now = datetime.now(UTC)
    path = f"{_leases(ref)}/{_name(ref)}"
    spec: dict[str, Any] = {
        "holderIdentity": holder,
        "leaseDurationSeconds": int(ttl_s),
        "renewTime": now.strftime(_TIME),
    }
    lease = await client.find(path)
    if lease is None:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": _name(ref), "labels": {objects.CLUSTER_LABEL: ref.name}},
            "spec": spec | {"acquireTime": now.strftime(_TIME), "leaseTransitions": 0},
        }
        await _won(client, ref, holder, client.create(_leases(ref), body), ttl_s)
        return
    lease_spec = mapping(lease, "spec")
    owner = text(lease_spec, "holderIdentity")
    version = text(mapping(lease, "metadata"), "resourceVersion")
    if owner and owner != holder and (not expired or expired != version):
        raise _taken(
            ref, owner, version, _duration_s(lease_spec, ttl_s), _is_current(lease_spec, now)
        )
    if owner != holder:
        spec["acquireTime"] = now.strftime(_TIME)
        spec["leaseTransitions"] = whole(lease_spec, "leaseTransitions") + 1
    change = {"metadata": {"resourceVersion": version}, "spec": spec}
    await _won(client, ref, holder, client.patch(path, change, kind="merge"), ttl_s)


async def release(client: KubeClient, ref: ClusterRef, holder: str) -> None:
    """See `Backend.release`."""
    path = f"{_leases(ref)}/{_name(ref)}"
    for _ in range(RELEASE_TRIES):
        try:
            lease = await client.get(path)
            if text(mapping(lease, "spec"), "holderIdentity") != holder:
                return  # another's by now
            version = text(mapping(lease, "metadata"), "resourceVersion")
            change = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": None}}
            await client.patch(path, change, kind="merge")
            return
        except KubeError as error:
            if error.status == 404:
                return
            # 409: another's by now, or a late renewal of ours was carried out in between.
            if error.status != 409:
                raise


async def holder(client: KubeClient, ref: ClusterRef) -> str:
    """Whose the Lease is, by this machine's clock; empty: no holder's."""
    lease_spec = mapping(await client.find(f"{_leases(ref)}/{_name(ref)}"), "spec")
    return text(lease_spec, "holderIdentity") if _is_current(lease_spec, datetime.now(UTC)) else ""


async def _won(client: KubeClient, ref: ClusterRef, holder: str, asked: Any, ttl_s: float) -> None:
    try:
        await asked
    except KubeError as error:
        if error.status != 409:
            raise
        # An earlier request of ours, whose answer did not arrive, may have been carried out late.
        lease = await client.find(f"{_leases(ref)}/{_name(ref)}")
        if text(mapping(lease, "spec"), "holderIdentity") == holder:
            return
        raise _taken(ref, "another cockpit, which was quicker", "", ttl_s, True) from error


def _taken(
    ref: ClusterRef, owner: str, version: str, ttl_s: float, current: bool
) -> LeaseHeldError:
    return LeaseHeldError(
        f"Another drill runs on RayCluster {ref.name}.",
        f"Held by {one_line(owner)}: one drill at a time.",
        f"Wait for it, or delete the Lease {_name(ref)} if its holder has ended.",
        renewal=version,
        ttl_s=ttl_s,
        current=current,
    )


def _duration_s(lease_spec: Mapping[str, Any], ttl_s: float) -> float:
    return float(whole(lease_spec, "leaseDurationSeconds")) or ttl_s


def _is_current(lease_spec: Mapping[str, Any], now: datetime) -> bool:
    try:
        renewed = datetime.strptime(text(lease_spec, "renewTime"), _TIME).replace(tzinfo=UTC)
    except ValueError:
        return False
    duration = timedelta(seconds=min(86_400, whole(lease_spec, "leaseDurationSeconds")))
    return renewed <= now + SKEW and now < renewed + duration


def _leases(ref: ClusterRef) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{ref.namespace}/leases"


def _name(ref: ClusterRef) -> str:
    return f"{ref.name}-drill"
