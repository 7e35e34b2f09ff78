"""What drills ask of Kubernetes: eviction, a network policy, and the Lease of a drill."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cockpit.backends.kuberay import identity, objects
from cockpit.backends.kuberay.client import KubeClient, KubeError
from cockpit.backends.kuberay.fields import mapping, text, whole
from cockpit.backends.kuberay.names import checked
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


async def evict(client: KubeClient, ref: ClusterRef, pod: str, uid: str, grace_s: int) -> None:
    """Raises CockpitError when a disruption budget does not allow it (429)."""
    path = f"/api/v1/namespaces/{ref.namespace}/pods/{checked('pod', pod)}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": ref.namespace},
        "deleteOptions": identity.delete_options(uid, gracePeriodSeconds=grace_s),
    }
    try:
        await client.create(path, body)
    except KubeError as error:
        if error.status != 429:
            raise
        raise CockpitError(
            f"Pod {one_line(pod)} is not evicted.",
            one_line(error.what),
            "A PodDisruptionBudget protects it: see kubectl get pdb.",
        ) from error


async def isolate(
    client: KubeClient, ref: ClusterRef, pod: str, name: str, labels: Mapping[str, Any]
) -> None:
    """A policy that selects this pod alone and allows nothing; where the CNI enforces policies.

    A pod is selected by labels: it is given one of our own, which goes with it.
    """
    marked = {"metadata": {"labels": {MARK: name}}}
    await client.patch(
        f"/api/v1/namespaces/{ref.namespace}/pods/{checked('pod', pod)}", marked, kind="merge"
    )
    await client.create(
        _policies(ref),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "labels": {objects.CLUSTER_LABEL: ref.name, MARK: name}},
            "spec": {
                "podSelector": {"matchLabels": {MARK: name}},
                "policyTypes": ["Ingress", "Egress"],
            },
        },
    )


MARK = "cockpit.ray.io/drill"
"""Label of the pod that a policy is about, and of the policy."""


async def rejoin(client: KubeClient, ref: ClusterRef, name: str) -> None:
    try:
        await client.delete(f"{_policies(ref)}/{checked('network policy', name)}")
    except KubeError as error:
        if error.status != 404:
            raise


async def hold(client: KubeClient, ref: ClusterRef, holder: str, ttl_s: float) -> None:
    """The Lease `CLUSTER-drill`, taken or renewed.

    Whether another's has run out is told by this machine's clock, as leader election in Kubernetes
    does: clocks may differ by less than the time to live.
    """
    now = datetime.now(UTC)
    path = f"{_leases(ref)}/{_lease_name(ref)}"
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": int(ttl_s),
        "renewTime": now.strftime(_TIME),
    }
    try:
        lease = await client.get(path)
    except KubeError as error:
        if error.status != 404:
            raise
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": _lease_name(ref), "labels": {objects.CLUSTER_LABEL: ref.name}},
            "spec": spec | {"acquireTime": now.strftime(_TIME)},
        }
        await _won(ref, client.create(_leases(ref), body))
        return
    held = mapping(lease, "spec")
    owner = text(held, "holderIdentity")
    if owner and owner != holder and now < _runs_out(held):
        raise _taken(ref, owner)
    if owner != holder:
        spec["acquireTime"] = now.strftime(_TIME)
    version = text(mapping(lease, "metadata"), "resourceVersion")
    change = {"metadata": {"resourceVersion": version}, "spec": spec}
    await _won(ref, client.patch(path, change, kind="merge"))


async def release(client: KubeClient, ref: ClusterRef, holder: str) -> None:
    path = f"{_leases(ref)}/{_lease_name(ref)}"
    try:
        lease = await client.get(path)
        if text(mapping(lease, "spec"), "holderIdentity") != holder:
            return
        version = text(mapping(lease, "metadata"), "resourceVersion")
        change = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": None}}
        await client.patch(path, change, kind="merge")
    except KubeError as error:
        if error.status not in (404, 409):  # gone, or another's by now
            raise


async def holder(client: KubeClient, ref: ClusterRef) -> str:
    """Whose the Lease is, by this machine's clock; empty: nobody's."""
    try:
        held = mapping(await client.get(f"{_leases(ref)}/{_lease_name(ref)}"), "spec")
    except KubeError as error:
        if error.status != 404:
            raise
        return ""
    return text(held, "holderIdentity") if datetime.now(UTC) < _runs_out(held) else ""


async def _won(ref: ClusterRef, asked: Any) -> None:
    try:
        await asked
    except KubeError as error:
        if error.status != 409:
            raise
        raise _taken(ref, "somebody who was quicker") from error


def _taken(ref: ClusterRef, owner: str) -> CockpitError:
    return CockpitError(
        f"Another drill runs on RayCluster {ref.name}.",
        f"It is {one_line(owner)}'s: one at a time, else neither could be measured.",
        f"Wait for it, or remove the Lease {_lease_name(ref)} if it is nobody's.",
    )


def _runs_out(held: Mapping[str, Any]) -> datetime:
    try:
        renewed = datetime.strptime(text(held, "renewTime"), _TIME).replace(tzinfo=UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return renewed + timedelta(seconds=whole(held, "leaseDurationSeconds"))


def _policies(ref: ClusterRef) -> str:
    return f"/apis/networking.k8s.io/v1/namespaces/{ref.namespace}/networkpolicies"


def _leases(ref: ClusterRef) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{ref.namespace}/leases"


def _lease_name(ref: ClusterRef) -> str:
    return f"{ref.name}-drill"
