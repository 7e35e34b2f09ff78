"""Faults by the Kubernetes API: eviction and a network policy."""

from __future__ import annotations

from contextlib import suppress

from cockpit.backends.kuberay.api.client import KubeClient, KubeError
from cockpit.backends.kuberay.api.fields import checked, items, mapping, text
from cockpit.backends.kuberay.resources import objects, precondition
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line


async def evict(client: KubeClient, ref: ClusterRef, pod: str, uid: str, grace_s: int) -> None:
    """Raises CockpitError when a disruption budget does not allow it (429)."""
    path = f"{_pods(ref)}/{checked('pod', pod)}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": ref.namespace},
        "deleteOptions": precondition.delete_options(uid, gracePeriodSeconds=grace_s),
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


async def isolate(client: KubeClient, ref: ClusterRef, pod: str, name: str, uid: str) -> None:
    """A policy that selects only this pod and allows no traffic.

    It requires a CNI that enforces policies. The pod gets a label for the selector, which is
    removed with the policy.
    """
    # A patch with another UID than the object's is refused: it is immutable.
    marked = {"metadata": {"uid": uid, "labels": {MARK: name}}}
    path = f"{_pods(ref)}/{checked('pod', pod)}"
    try:
        await client.patch(path, marked, kind="merge")
    except KubeError as error:
        if error.status in (409, 422):
            precondition.require("Pod", pod, await client.get(path), uid)
        raise
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": {objects.CLUSTER_LABEL: ref.name, MARK: name}},
        "spec": {
            "podSelector": {"matchLabels": {MARK: name}},
            "policyTypes": ["Ingress", "Egress"],
        },
    }
    try:
        await client.create(_policies(ref), policy)
    except CockpitError:
        with suppress(CockpitError):
            await _unmark(client, ref, pod, uid)
        raise


MARK = "cockpit.ray.io/drill"
"""Label of the pod that a policy is about, and of the policy.

The manifests' policies that allow traffic exclude pods with it.
"""


async def rejoin(client: KubeClient, ref: ClusterRef, name: str) -> None:
    try:
        await client.delete(f"{_policies(ref)}/{checked('network policy', name)}")
    except KubeError as error:
        if error.status != 404:
            raise
    answer = await client.get(_pods(ref), {"labelSelector": f"{MARK}={name}"})
    for pod in items(answer, "items"):
        meta = mapping(pod, "metadata")
        await _unmark(client, ref, text(meta, "name"), text(meta, "uid"))


async def _unmark(client: KubeClient, ref: ClusterRef, pod: str, uid: str) -> None:
    change = {"metadata": {"uid": uid, "labels": {MARK: None}}}
    try:
        await client.patch(f"{_pods(ref)}/{checked('pod', pod)}", change, kind="merge")
    except KubeError as error:
        if error.status not in (404, 409, 422):  # deleted, or another pod has its name by now
            raise


def _pods(ref: ClusterRef) -> str:
    return f"/api/v1/namespaces/{ref.namespace}/pods"


def _policies(ref: ClusterRef) -> str:
    return f"/apis/networking.k8s.io/v1/namespaces/{ref.namespace}/networkpolicies"
