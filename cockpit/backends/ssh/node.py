"""What a pod is started with: Ray's command line and environment."""

from __future__ import annotations

import math
import secrets
import string
import time
import uuid
from typing import Any

from msgspec import to_builtins

from cockpit.backends.local.pods.ray_start import RAY_SETTINGS
from cockpit.backends.ssh.description import Host, Hosts
from cockpit.backends.ssh.state import ClusterRecord
from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.recovery import profile

_LETTERS = string.ascii_lowercase + string.digits


def start_request(
    hosts: Hosts, cluster: ClusterRecord, host: Host, head_uid: str
) -> dict[str, Any]:
    """For the agent of the host. `head_uid`: of the running head; empty to start the head."""
    pod = Pod(
        name=f"{host.name}-" + "".join(secrets.choice(_LETTERS) for _ in range(5)),
        group=host.group,
        node_type=NodeType.HEAD if host.is_head else NodeType.WORKER,
        phase=PodPhase.PENDING,
        ready=False,
        ip=host.address,
        created_s=time.time(),
        host=host.name,
        gpus=host.gpus or 0.0,
        uid=str(uuid.uuid4()),
    )
    return {
        "pod": to_builtins(pod),
        "cluster": cluster.uid,
        "head_uid": head_uid or pod.uid,
        "python": host.python,
        "argv": ray_start(hosts, cluster, host),
        "env": {
            **RAY_SETTINGS,
            **profile(cluster.recovery).pod_env,
            "RAY_AUTH_MODE": "token",
            "RAY_ADDRESS": at(hosts.head.address, cluster.ports[0]),
        },
        "gcs": [] if host.is_head else [hosts.head.address, cluster.ports[0]],
        "object_store_bytes": host.object_store_bytes or 0,
        "unit": host.is_unit,
    }


def client_environment(hosts: Hosts, cluster: ClusterRecord) -> dict[str, str]:
    """What `ray.init()`, `ray status` and `ray job` in a pod need on top, to find the cluster."""
    return {"RAY_API_SERVER_ADDRESS": f"http://{at(hosts.head.address, cluster.ports[1])}"}


def at(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def ray_start(hosts: Hosts, cluster: ClusterRecord, host: Host) -> list[str]:
    """Without `--temp-dir`, which the agent adds.

    Ray listens on all interfaces with what `local.pods.ray_start` lists; the token protects it.
    """
    gcs, dashboard, client = cluster.ports
    argv = ["start", "--block", "--log-color=false", f"--node-ip-address={host.address}"]
    if host.is_head:
        argv += [
            *("--head", f"--port={gcs}", "--disable-usage-stats"),
            *(f"--dashboard-host={host.address}", f"--dashboard-port={dashboard}"),
            f"--ray-client-server-port={client}",
        ]
    else:
        argv.append(f"--address={at(hosts.head.address, gcs)}")
    cpus, gpus = host.cpus, host.gpus
    if host.is_head:  # as is usual on KubeRay: drivers run there, ranks only where it is asked for
        cpus, gpus = cpus or 0.0, gpus or 0.0
    argv += [] if cpus is None else [f"--num-cpus={math.ceil(cpus)}"]
    argv += [] if gpus is None else [f"--num-gpus={math.ceil(gpus)}"]
    if host.object_store_bytes:
        argv.append(f"--object-store-memory={host.object_store_bytes}")
    argv.append(f"--labels=ray.io/group={host.group}")
    # 0: any free port.
    return [*argv, "--dashboard-agent-listen-port=0", "--min-worker-port=0", "--max-worker-port=0"]
