"""Containers that the operator adds to a pod, and the probes of Ray's own."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from tests.cluster.operator import environment
from tests.cluster.operator.api import Object
from tests.cluster.operator.raycluster import Cluster, supports_health_route

SHELL = ["/bin/bash", "-c", "--"]
_WAIT_S = 5
_PATIENCE_S = 120
"""How long the tool's warnings are kept out of the log."""


def wait_for_gcs(ray: Object, address: str) -> Object:
    """The init container of a worker, which ends once the head's GCS answers."""
    check = f"ray health-check --address {address}"
    script = f"""
SECONDS=0
until if (( SECONDS <= {_PATIENCE_S} )); then {check} > /dev/null 2>&1; else {check}; fi; do
  echo "$SECONDS seconds elapsed: Waiting for GCS to be ready."
  sleep {_WAIT_S}
done
echo "GCS is ready."
"""
    resources = {"cpu": "200m", "memory": "256Mi"}
    container: Object = {
        "name": "wait-gcs-ready",
        "image": ray["image"],
        "command": SHELL,
        "args": [script],
        "env": copy.deepcopy(ray.get("env", [])),
        "volumeMounts": copy.deepcopy(ray.get("volumeMounts", [])),
        "resources": {"limits": resources, "requests": dict(resources)},
    }
    for name in ("imagePullPolicy", "securityContext"):
        if name in ray:
            container[name] = copy.deepcopy(ray[name])
    return container


def autoscaler(cluster: Cluster, image: str) -> Object:
    """The sidecar of the head: Ray's own autoscaler, which edits the RayCluster."""
    assert cluster.autoscaler is not None
    options = cluster.autoscaler.options
    start = (
        "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) "
        "--cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
    )
    resources = {"cpu": "500m", "memory": "512Mi"}
    container: Object = {
        "name": "autoscaler",
        "image": options.get("image") or image,
        "imagePullPolicy": options.get("imagePullPolicy") or "IfNotPresent",
        "command": list(options.get("command") or SHELL),
        "args": list(options.get("args") or [start]),
        "env": [
            *environment.place(),
            environment.field("RAY_HEAD_POD_NAME", "metadata.name"),
            environment.plain("KUBERAY_CRD_VER", "v1"),
            environment.plain("KUBERAY_GEN_AUTOSCALER_START_CMD", start),
        ],
        "resources": options.get("resources") or {"limits": resources, "requests": dict(resources)},
    }
    environment.add_missing(container, *environment.token(cluster))
    container["env"] += options.get("env") or []
    for name in ("envFrom", "volumeMounts", "securityContext"):
        if options.get(name):
            container[name] = copy.deepcopy(options[name])
    return container


def probes(ray_version: str, start_params: Mapping[str, str], *, head: bool) -> Object:
    """Liveness and readiness of Ray's container, by the name of the field."""
    port = int(start_params["dashboard-agent-listen-port"])
    timeout_s = 5 if head else 2
    if supports_health_route(ray_version):
        check: Object = {"httpGet": {"path": "/api/healthz", "port": port}}
    else:
        wget = "wget --tries 1 -T {} -q -O- http://localhost:{}/{} | grep success"
        checks = [wget.format(2, port, "api/local_raylet_healthz")]
        if head:
            dashboard = start_params.get("dashboard-port", "8265")
            checks.append(wget.format(10, dashboard, "api/gcs_healthz"))
        check = {"exec": {"command": ["bash", "-c", " && ".join(checks)]}}
    common = {**check, "timeoutSeconds": timeout_s, "periodSeconds": 5, "successThreshold": 1}
    return {
        "livenessProbe": {**common, "initialDelaySeconds": 30, "failureThreshold": 120},
        "readinessProbe": {**common, "initialDelaySeconds": 10, "failureThreshold": 10},
    }
