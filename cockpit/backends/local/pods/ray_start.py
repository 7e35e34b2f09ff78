"""The command line and environment of a pod: for a process group that acts as a Ray node.

What listens where (Ray 2.60, `ss -ltnp`), with every flag set that Ray has for it: the dashboard,
the dashboard agent's and the runtime-env agent's HTTP and the client server listen on the pod's
loopback address only (agent and client server to 127.0.0.1 too); **the GCS, each raylet's node
manager and object manager, each agent's gRPC port, every worker and driver, and the Prometheus
endpoints of agent, dashboard and autoscaler listen on all interfaces**, and this cannot be
configured. All of them except the Prometheus endpoints (metrics only) require the token. Ports set
to 0 are chosen by the kernel, so that pods and clusters cannot collide; only the three ports of the
head that others must know are chosen here.

Tested without the token, on every port of a cluster with a job: HTTP returns 401 and gRPC
UNAUTHENTICATED, except on the Prometheus endpoints.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cockpit.backends.local.files import RunFiles
from cockpit.backends.local.pods.process import CLUSTER_VARIABLE, POD_VARIABLE
from cockpit.backends.local.spec import ClusterSpec
from cockpit.model.cluster import NodeType, Pod, Resources
from cockpit.model.recovery import profile

OBJECT_STORE_BYTES = 150_000_000
"""A pod's object store. Ray's default, 30 % of the machine for each pod, would count the same
memory several times over; training passes references and small objects. Ray's least is 75 MB."""

RAY_SETTINGS: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_STATE_TRACKING": "1",  # otherwise /api/train/v2/runs/v1 returns 500
    "RAY_DASHBOARD_ENABLE_PROFILING": "1",  # stacks and profiles, for holders of the token
    "AUTOSCALER_METRIC_PORT": "0",  # fixed ports otherwise, so two clusters would collide
    "DASHBOARD_METRIC_PORT": "0",
    # Seconds that a worker waits for the head's raylet once its GCS listens; 20 by default, and on
    # 2 cores with a load of 35 the head took 48 to 64.
    "RAY_NUM_REDIS_GET_RETRIES": "90",
    # Seconds that `ray start` waits for its raylet; 30 by default. At a load of 25 on 2 cores, a
    # worker and its replacement both gave up.
    "RAY_raylet_start_wait_time_s": "90",
}
"""Ray's settings in every pod, beyond its defaults; a recovery profile adds to them."""


def pod_environment(
    spec: ClusterSpec, token: Path, pod: str, gpus: Sequence[str]
) -> dict[str, str]:
    """The environment of all processes in the pod, without the user's Ray settings.

    `python` and `ray` in it are the cluster's, since a job's entrypoint is looked up in PATH.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= RAY_SETTINGS
    environment |= profile(spec.recovery).pod_env
    environment |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        # As in KubeRay's pods. Otherwise Ray reads /tmp/ray/ray_current_cluster, which may name a
        # cluster that ended: Train's state actor then waits for it, and does not respond
        # (ray_address_to_api_server_url, Ray 2.60).
        "RAY_ADDRESS": spec.gcs_address,
        "PATH": f"{Path(spec.python).parent}:{os.environ.get('PATH', os.defpath)}",
        CLUSTER_VARIABLE: spec.uid,
        POD_VARIABLE: pod,
        # Removed with the pod, whose processes are killed and leave their temporary files behind.
        "TMPDIR": os.environ.get("TMPDIR") or str(RunFiles.of(spec.uid).pod(pod)),
        # Empty, not absent: a pod without GPUs must not see those of the others.
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
    }
    return environment


def early_imports(spec: ClusterSpec, pod: str) -> tuple[list[str], dict[str, str]]:
    """The command that imports the libraries of a run while Ray starts on a pod that joins it, and
    the variable with its directory for the pod: see training/recovery/early_imports.py.

    It ends at once, and leaves a process behind that is no child of the operator.
    """
    directory = str(RunFiles.of(spec.uid).pod(pod) / "early")
    program = ["-m", "training.recovery.early_imports", spec.gcs_address, directory]
    shell = ["sh", "-c", 'mkdir -pm 700 "$0"; "$@" > "$0/log" 2>&1 &', directory]
    return [*shell, spec.python, *program], {"COCKPIT_EARLY_IMPORTS": directory}


def client_environment(spec: ClusterSpec) -> dict[str, str]:
    """What `ray.init()`, `ray status` and `ray job` in a pod need on top, to find the cluster."""
    return {"RAY_ADDRESS": spec.gcs_address, "RAY_API_SERVER_ADDRESS": spec.dashboard_url}


def ray_start_argv(spec: ClusterSpec, pod: Pod, resources: Resources) -> list[str]:
    directory = RunFiles.of(spec.uid).pod(pod.name)
    argv = [spec.python, "-m", "ray.scripts.scripts", "start", "--block", "--log-color=false"]
    if pod.node_type is NodeType.HEAD:
        argv += [
            "--head",
            f"--port={spec.gcs_port}",
            f"--dashboard-host={spec.head_ip}",
            f"--dashboard-port={spec.dashboard_port}",
            f"--ray-client-server-port={spec.client_port}",
            "--disable-usage-stats",
        ]
    else:
        argv.append(f"--address={spec.gcs_address}")
    argv += [
        f"--node-ip-address={pod.ip}",
        # Each pod has its own directory, as a container has its own file system: with a shared one,
        # every log monitor would send the lines of every pod, and drivers would print them twice.
        f"--temp-dir={directory}",
        f"--labels=ray.io/group={pod.group}",
        f"--num-cpus={math.ceil(resources.cpus)}",
        f"--num-gpus={math.ceil(resources.gpus)}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        # 0 in all of these: any free port. The defaults are fixed ports or ranges.
        "--dashboard-agent-listen-port=0",
        "--min-worker-port=0",
        "--max-worker-port=0",
    ]
    if resources.memory_bytes:
        argv.append(f"--memory={resources.memory_bytes}")
    if plasma_is_short():
        argv.append(f"--plasma-directory={directory}")
    return argv


def plasma_is_short() -> bool:
    """Whether /dev/shm cannot take one more object store (Docker's is 64 MB by default).

    Ray refuses to start then; on disk it is slower, and works.
    """
    try:
        return shutil.disk_usage("/dev/shm").free < 2 * OBJECT_STORE_BYTES
    except FileNotFoundError:
        return True
