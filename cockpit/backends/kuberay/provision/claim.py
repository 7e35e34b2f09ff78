"""What the claim for checkpoints waits for."""

from __future__ import annotations

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.provision.overlay import CLAIM
from cockpit.backends.kuberay.waiting import watch
from cockpit.model.cluster import ClusterRef
from cockpit.model.text import one_line


async def pending(client: KubeClient, ref: ClusterRef) -> str:
    """Why the claim has no volume yet, in one line; empty if it has, or if it cannot be read."""
    state = await watch.claim(client, ref.namespace, CLAIM)
    if state.phase != "Pending":
        return ""
    why = state.message or "no volume was found or made yet"
    return one_line(f"the claim {CLAIM} waits for a volume: {why}")
