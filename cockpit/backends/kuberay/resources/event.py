"""Record a change by cockpit as a Kubernetes Event on the object."""

from __future__ import annotations

import logging
import uuid
from datetime import UTC, datetime
from typing import Any

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.fields import checked
from cockpit.backends.protocol import Change
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.secret import masked

COMPONENT = "cockpit"
_KINDS = {
    "RayCluster": ("ray.io/v1", "rayclusters", "/apis/ray.io/v1"),
    "RayJob": ("ray.io/v1", "rayjobs", "/apis/ray.io/v1"),
    "Pod": ("v1", "pods", "/api/v1"),
    "Node": ("v1", "nodes", "/api/v1"),
}
log = logging.getLogger(__name__)


async def announce(client: KubeClient, ref: ClusterRef, change: Change, who: str) -> None:
    """Raises nothing: the change was made, and the audit log has it in any case."""
    version, plural, api = _KINDS.get(change.kind, _KINDS["RayCluster"])
    about: dict[str, Any] = {"apiVersion": version, "kind": change.kind, "name": change.name}
    scope = "" if change.kind == "Node" else f"/namespaces/{ref.namespace}"
    if change.kind != "Node":
        about["namespace"] = ref.namespace
    now = datetime.now(UTC)
    message = f"{change.action} by {who or 'an unnamed user'}"
    if change.before or change.after:
        message += f": {change.before or '-'} → {change.after or '-'}"
    # Events on objects without a namespace live in `default`, as the kubelet's own do.
    namespace = ref.namespace if scope else "default"
    try:
        if change.kind != "Pod":  # a killed pod is deleted before it could be read
            name = checked(change.kind, change.name)  # a job's id is any text of its author
            found = await client.get(f"{api}{scope}/{plural}/{name}")
            about["uid"] = found["metadata"]["uid"]
        await client.create(
            f"/api/v1/namespaces/{namespace}/events",
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{change.name[:200]}.{uuid.uuid4().hex[:12]}"},
                "involvedObject": about,
                "reason": "Cockpit" + change.action.replace("-", " ").title().replace(" ", ""),
                "message": masked(message)[:1000],  # everyone who may list Events reads it
                "type": "Normal",
                "firstTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "lastTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "count": 1,
                "source": {"component": COMPONENT},
                "reportingComponent": COMPONENT,
                "reportingInstance": COMPONENT,
            },
        )
    except (CockpitError, KeyError, TypeError) as error:
        log.info("no Event was left on %s %s: %s", change.kind, change.name, error)
