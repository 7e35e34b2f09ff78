"""`cockpit status` on Kubernetes: `python -m tests.bench.status_on_kubernetes`.

Against `ray job list` and kubectl, on the same real RayCluster. `ray job list` uses a port-forward
that is already open; cockpit needs none. `python -m tests.cluster.build --nightly` builds kubectl.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.bench.process import COCKPIT, RAY, alternate
from tests.bench.status_cost import PAIRS, times_faster, wall
from tests.bench.table import Line, Table, load, say, show, spread
from tests.cluster.build import missing, missing_nightly, program
from tests.cluster.fixtures import RealCluster, real_cluster
from tests.cluster.raycluster import Group
from tests.cluster.testbed import Testbed

MOST_OF_KUBECTL = 3.0


def measure() -> Table:
    """Raises SystemExit when a test cluster or kubectl is missing."""
    if why := missing() or missing_nightly("kubectl"):
        raise SystemExit(why)
    began = load()
    testbed = Testbed.up(real=True, operator=True)
    try:
        say("starting a RayCluster …")
        cluster = real_cluster(testbed, Group(replicas=2))
        with TemporaryDirectory() as folder:
            lines = compare(cluster, Path(folder))
    finally:
        testbed.down()
    return Table(
        "Status on Kubernetes",
        f"A RayCluster with a head and 2 workers on a real API server and kubelet; {PAIRS} pairs "
        "of each, alternating, median (quartiles) of the wall time. `ray job list` uses a "
        "port-forward that was opened before.",
        lines,
        began,
    )


def compare(cluster: RealCluster, folder: Path) -> list[Line]:
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "XDG_STATE_HOME": str(folder)}
    own = [COCKPIT, "status", "-n", cluster.ref.namespace, "--cluster", cluster.ref.name]
    own += ["-o", "json"]
    kubectl = [str(program("kubectl")), "get", "raycluster", "-n", cluster.ref.namespace]
    with forwarded(cluster, environment) as port:
        environment |= {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{port}"}
        environment |= with_token(cluster, folder)
        ray, beside_ray = alternate([RAY, "job", "list"], own, PAIRS, environment)
    listed, beside_kubectl = alternate(kubectl, own, PAIRS, environment)
    ratios = [
        ours.wall_s / theirs.wall_s for theirs, ours in zip(listed, beside_kubectl, strict=True)
    ]
    return [
        Line("`ray job list`", wall(ray)),
        Line("`cockpit status -o json`", wall(beside_ray)),
        times_faster("speedup", [t.wall_s for t in ray], [t.wall_s for t in beside_ray]),
        Line("`kubectl get raycluster`", wall(listed)),
        Line("`cockpit status -o json`, alternating with it", wall(beside_kubectl)),
        Line(
            "multiple of kubectl",
            spread(ratios, digits=1),
            f"≤ {MOST_OF_KUBECTL:g}",
            median(ratios) <= MOST_OF_KUBECTL,
        ),
    ]


@contextmanager
def forwarded(cluster: RealCluster, environment: dict[str, str]) -> Iterator[int]:
    """A port of this host that kubectl forwards to the dashboard."""
    service = f"service/{cluster.ref.name}-head-svc"
    argv = [str(program("kubectl")), "port-forward", "-n", cluster.ref.namespace, service, ":8265"]
    with subprocess.Popen(
        argv, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()  # Forwarding from 127.0.0.1:PORT -> 8265
            yield int(line.partition("127.0.0.1:")[2].split()[0])
        finally:
            process.terminate()


def with_token(cluster: RealCluster, folder: Path) -> dict[str, str]:
    """Variables of Ray's client, with the token that KubeRay made."""
    path = f"/api/v1/namespaces/{cluster.ref.namespace}/secrets/{cluster.ref.name}"
    secret = cluster.testbed.plane.ask("GET", path)["data"]["auth_token"]
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_bytes(base64.b64decode(secret))
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}


if __name__ == "__main__":
    sys.exit(show(measure))
