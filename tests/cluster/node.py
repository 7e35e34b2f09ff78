"""A node of the test cluster: containerd, kubelet, kube-proxy and CoreDNS, inside the same space.

Images come from no registry: they are written here, almost empty. A pod of Ray mounts the host's
/usr, Python and virtual environment (see `raycluster`).
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.build import CNI_PLUGINS, program
from tests.cluster.control_plane import SERVICES, ControlPlane
from tests.cluster.host_image import archive, training_image, with_host_mounts
from tests.cluster.space import Space

NAME = "node-1"
PODS = "10.244.0.0/16"
PAUSE_IMAGE = "localhost/pause:1"
ROOT_IMAGE = "localhost/root:1"
"""An empty root with the usual directories: what runs in it is mounted."""
# The space has a separate /run; a path in its folder may be too long for a socket. The kubelet's
# cAdvisor looks at this path only, and has no network metrics of pods without it.
_SOCKET = Path("/run/containerd/containerd.sock")
_KUBELET = Path("/run/kubelet")


def start(plane: ControlPlane, images: Sequence[str] = ()) -> None:
    """Everything that a node runs; returns when the node is Ready.

    `images` are names under which there is one with the programs of this machine.
    """
    space = plane.space
    _containerd(space, with_programs=bool(images))
    _images(space, images)
    _kubelet(plane)
    _proxy(plane)
    _dns(plane)
    _wait_ready(plane)


def _containerd(space: Space, *, with_programs: bool) -> None:
    folder = space.folder / "containerd"
    (folder / "cni").mkdir(parents=True)
    base = ""
    if with_programs:
        default = json.loads(space.run(_which("ctr"), "oci", "spec").stdout)
        (folder / "base.json").write_text(json.dumps(with_host_mounts(default)))
        base = f'base_runtime_spec = "{folder}/base.json"'
    (folder / "cni" / "10-bridge.conflist").write_text(
        json.dumps(
            {
                "cniVersion": "1.0.0",
                "name": "pods",
                "plugins": [
                    {
                        "type": "bridge",
                        "bridge": "cni0",
                        "isGateway": True,
                        "hairpinMode": True,
                        "ipam": {
                            "type": "host-local",
                            "ranges": [[{"subnet": PODS}]],
                            "routes": [{"dst": "0.0.0.0/0"}],
                            "dataDir": str(folder / "addresses"),
                        },
                    }
                ],
            }
        )
    )
    (folder / "config.toml").write_text(
        f"""
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.internal.v1.opt",
]
[grpc]
  address = "{_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      {base}
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{shutil.which("runc")}"
"""
    )
    space.start("containerd", [_which("containerd"), "--config", folder / "config.toml"])
    deadline = time.monotonic() + 30
    while space.run(*ctr(), "version", check=False).returncode:
        if not space.alive("containerd") or time.monotonic() > deadline:
            raise RuntimeError(f"containerd does not answer:\n{space.said('containerd')}")
        time.sleep(0.1)


def _images(space: Space, names: Sequence[str]) -> None:
    pause = {"pause": program("pause").read_bytes()}
    search = ["PATH=/usr/local/bin:/usr/bin:/bin"]
    archives = [
        archive(PAUSE_IMAGE, {"Entrypoint": ["/pause"], "Env": search}, pause, mode=0o755),
        archive(ROOT_IMAGE, {"Env": search}, {}),
        *map(training_image, names),
    ]
    for number, content in enumerate(archives):
        path = space.folder / f"image-{number}.tar"
        path.write_bytes(content)
        space.run(*ctr(), "images", "import", path)


def _kubelet(plane: ControlPlane) -> None:
    space = plane.space
    (space.folder / "resolv.conf").write_text("")
    (space.folder / "kubelet").mkdir()
    space.run("mkdir", _KUBELET)
    space.run("mount", "--bind", space.folder / "kubelet", _KUBELET)
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(plane.authority.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{space.group}",
        "enforceNodeAllocatable": [],
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,  # a full disk must not delete unpullable images
        "clusterDNS": [space.address],
        "clusterDomain": "cluster.local",
        "resolvConf": str(space.folder / "resolv.conf"),
        "volumePluginDir": str(_KUBELET / "plugins"),
        "maxPods": 60,
        "oomScoreAdj": 0,
        "shutdownGracePeriod": "0s",
        # Workers that lose their head restart several times before the next one answers. By default
        # the delay is then up to 5 minutes, and is reset only after 10 minutes without a restart.
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "20s"},
    }
    _write_yaml(space.folder / "kubelet.yaml", config)
    space.start(
        "kubelet",
        [
            program("kubelet"),
            f"--config={space.folder}/kubelet.yaml",
            f"--kubeconfig={plane.user_kubeconfig(f'system:node:{NAME}', ['system:nodes'])}",
            f"--hostname-override={NAME}",
            f"--node-ip={space.address}",
            f"--root-dir={_KUBELET}",
        ],
    )


def _proxy(plane: ControlPlane) -> None:
    space = plane.space
    # A packet needs a route before the rules rewrite its address.
    space.run("ip", "route", "add", SERVICES, "via", space.host)
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(plane.user_kubeconfig("system:kube-proxy"))},
        "clusterCIDR": PODS,
        "hostnameOverride": NAME,
        "healthzBindAddress": "127.0.0.1:10256",
        # Pods on one bridge respond to each other directly, without the rules that rewrote the
        # address. With the sender's address rewritten too, responses take the same route back.
        "nftables": {"masqueradeAll": True},
        "conntrack": {"maxPerCore": 0, "min": 0},
    }
    _write_yaml(space.folder / "proxy.yaml", config)
    space.start("kube-proxy", [program("kube-proxy"), f"--config={space.folder}/proxy.yaml"])


def _dns(plane: ControlPlane) -> None:
    space = plane.space
    corefile = space.folder / "Corefile"
    corefile.write_text(
        ".:53 {\n  errors\n  cache 2\n  kubernetes cluster.local {\n"
        f"    kubeconfig {plane.kubeconfig} admin\n  }}\n}}\n"
    )
    space.start("coredns", [program("coredns"), "-conf", corefile])


def _wait_ready(plane: ControlPlane) -> None:
    deadline = time.monotonic() + 60
    while not _is_ready(plane):
        if ended := plane.space.ended():
            raise RuntimeError(ended)
        if time.monotonic() > deadline:
            raise RuntimeError(f"the node is not Ready:\n{plane.space.said('kubelet', 40)}")
        time.sleep(0.1)


def _is_ready(plane: ControlPlane) -> bool:
    nodes = plane.ask("GET", "/api/v1/nodes")["items"]
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for node in nodes
        if node["metadata"]["name"] == NAME
        for condition in node["status"].get("conditions", ())
    )


def ctr() -> list[str]:
    return [_which("ctr"), "--address", str(_SOCKET), "--namespace", "k8s.io"]


def _which(command: str) -> str:
    found = shutil.which(command)
    if found is None:
        raise RuntimeError(f"{command} is not installed")
    return found


def _write_yaml(path: Path, content: Any) -> None:
    path.write_text(yaml.safe_dump(content))
