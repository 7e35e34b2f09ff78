"""The description as a configuration of Ray's own cluster launcher, for `ray up`.

Ray has no provider for Lambda Cloud, so it is one of type `local`: hosts that are up, by their
addresses. The format is Ray's `autoscaler/ray-schema.json`.
"""

from __future__ import annotations

import getpass
import shlex
from pathlib import PurePosixPath

import yaml

from cockpit.backends.ssh.description import Hosts


def text(hosts: Hosts, ssh_key: str = "", head_ip: str = "") -> str:
    """YAML. `head_ip`: where the launcher reaches the head, if it is not its address."""
    head = hosts.head
    workers = [
        host for group, count in hosts.replicas.items() for host in hosts.of_group(group)[:count]
    ]
    # The program itself, since the launcher looks for `ray start` in the commands (Ray 2.60).
    beside = PurePosixPath(head.python).with_name("ray")
    ray = shlex.quote(str(beside))
    port = 6379
    wanted = {
        "cluster_name": hosts.cluster,
        "provider": {
            "type": "local",
            "head_ip": head.address,
            **({"external_head_ip": head_ip} if head_ip else {}),
            "worker_ips": [host.address for host in workers],
        },
        "auth": {
            "ssh_user": head.user or getpass.getuser(),
            **({"ssh_private_key": ssh_key} if ssh_key else {}),
        },
        "max_workers": len(workers),
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
        **({"head_setup_commands": [_in_path(beside.parent)]} if beside.is_absolute() else {}),
        "head_start_ray_commands": [
            f"{ray} stop",
            f"{ray} start --head --port={port} --node-ip-address={head.address} "
            "--dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml",
        ],
        "worker_start_ray_commands": [
            f"{ray} stop",
            f"{ray} start --address=$RAY_HEAD_IP:{port}",
        ],
    }
    return str(yaml.safe_dump(wanted, sort_keys=False))


def _in_path(folder: PurePosixPath) -> str:
    """Add the folder to the PATH of the user's shells, once.

    `ray down` runs `ray stop` there, and ignores that it was not found (`teardown_cluster`, Ray
    2.60): the head would continue to run. Each command of the launcher reads ~/.bashrc.
    """
    line = shlex.quote(f"export PATH={shlex.quote(str(folder))}:$PATH")
    return f"grep -qxF {line} ~/.bashrc || echo {line} >> ~/.bashrc"
