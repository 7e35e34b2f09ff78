"""The objects that the operator created, as far as they can be compared."""

from __future__ import annotations

import copy
import json
from typing import Any

Manifest = dict[str, Any]

_OF_THE_API_SERVER = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "namespace",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_OF_THE_SCHEDULER = ("nodeName", "tolerations", "schedulerName", "priority", "preemptionPolicy")
_VALUE_VARIES = (
    "RAY_USAGE_STATS_EXTRA_TAGS",  # the operator's version
)


def cluster(item: Manifest) -> Manifest:
    """The RayCluster to apply. Folders of the machine that it was recorded on are left out."""
    kept = copy.deepcopy(item)
    spec = kept["spec"]
    for group in (spec["headGroupSpec"], *spec.get("workerGroupSpecs", ())):
        _without_folders(group["template"]["spec"])
    spec.get("autoscalerOptions", {}).pop("volumeMounts", None)
    meta = {"name": kept["metadata"]["name"]}
    return {"apiVersion": kept["apiVersion"], "kind": "RayCluster", "metadata": meta, "spec": spec}


def pod(item: Manifest) -> Manifest:
    """Left out: what the API server and the scheduler add, and the values that vary."""
    kept = _common(item)
    spec = kept["spec"]
    kept["metadata"]["annotations"] = sorted(kept["metadata"].get("annotations", {}))
    _without_folders(spec)
    for name in _OF_THE_SCHEDULER:
        spec.pop(name, None)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        for variable in container.get("env", ()):
            if variable["name"] in _VALUE_VARIES:
                variable["value"] = "…"
    for container in spec.get("initContainers", ()):
        # A script: only the address in it is the same everywhere.
        lines = " ".join(container["args"]).replace(";", " ").split()
        container["args"] = [lines[lines.index("--address") + 1]]
    return _here(kept, item)


def service(item: Manifest) -> Manifest:
    return _here(_common(item), item)


def _common(item: Manifest) -> Manifest:
    kept = copy.deepcopy(item)
    kept.pop("status", None)
    meta = kept["metadata"]
    for name in _OF_THE_API_SERVER:
        meta.pop(name, None)
    if "generateName" in meta:
        del meta["name"]
    for owner in meta.get("ownerReferences", ()):
        del owner["uid"]
    return kept


def _here(kept: Manifest, item: Manifest) -> Manifest:
    """The same for every namespace."""
    domain = f".{item['metadata']['namespace']}.svc."
    same: Manifest = json.loads(json.dumps(kept).replace(domain, ".NAMESPACE.svc."))
    return same


def _without_folders(spec: Manifest) -> None:
    """Neither the machine's folders nor the token that the API server mounts."""
    removed = {
        volume["name"]
        for volume in spec.get("volumes", ())
        if "hostPath" in volume or volume["name"].startswith("kube-api-access-")
    }
    spec["volumes"] = [v for v in spec.get("volumes", ()) if v["name"] not in removed]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        mounts = [m for m in container.get("volumeMounts", ()) if m["name"] not in removed]
        container["volumeMounts"] = mounts
    for holder in (spec, *spec["containers"], *spec.get("initContainers", ())):
        for name in ("volumes", "volumeMounts"):
            if name in holder and not holder[name]:
                del holder[name]
