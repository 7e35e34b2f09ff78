"""What the claim for checkpoints waits for."""

from __future__ import annotations

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.fields import items, mapping, text
from cockpit.backends.kuberay.provision.kinds import CLAIM
from cockpit.backends.kuberay.provision.overlay import CLAIM as NAME
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line


async def pending(client: KubeClient, ref: ClusterRef) -> str:
    """Why the claim has no volume yet, in one line; empty if it has, or if it cannot be read."""
    try:
        found = await client.get(CLAIM.path(ref.namespace, NAME))
        if text(mapping(found, "status"), "phase") != "Pending":
            return ""
        about = f"involvedObject.kind={CLAIM.name},involvedObject.name={NAME}"
        events = items(
            await client.get(
                f"/api/v1/namespaces/{ref.namespace}/events", {"fieldSelector": about}
            ),
            "items",
        )
    except CockpitError:
        return ""
    events.sort(key=lambda event: text(event, "lastTimestamp"))
    why = text(events[-1], "message") if events else "no volume was found or made yet"
    return one_line(f"the claim {NAME} waits for a volume: {why}")
