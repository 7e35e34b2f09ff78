"""What a host is: its versions, processors, GPUs and disk."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import platform
import pwd
import resource
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from cockpit.backends.ssh.agent.place import Place, lives
from cockpit.backends.ssh.agent.streams import put

NVIDIA_SMI_S = 10.0
FULL_DISK = 0.95
"""Ray starts no more tasks on a node whose disk is fuller (RAY_local_fs_capacity_threshold)."""


def facts(place: Place, request: dict[str, Any]) -> None:
    """What `up` checks before it starts anything."""
    answer = host_facts() | {"python": platform.python_version(), "ray": ray_version()}
    answer["at_s"] = time.time()
    living = [record for record in place.pods() if lives(record)]
    answer["pods"] = [record["pod"]["name"] for record in living]
    answer["open_ports"], answer["tokenless"] = [], []
    for record in living:
        pids = [one.id.pid for one in place.processes(record)]
        answer["open_ports"] += ports_open_to_all(pids)
        answer["tokenless"] += without_token(pids)
    disk = shutil.disk_usage("/tmp")
    answer["disk_bytes"], answer["disk_free_bytes"] = disk.total, disk.free
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    answer["open_files"] = 0 if most == resource.RLIM_INFINITY else most
    cluster = place.cluster
    answer["cluster"] = cluster["uid"] if cluster else ""
    answer["private_ports"] = cluster["ports"][1:] if cluster else []
    answer["public"] = public_addresses()
    answer["unit"] = without_units()
    others = [Place(path.name[2:]) for path in place.root.parent.glob("h-*") if path != place.root]
    answer["others"] = [
        record["pod"]["name"]
        for other in others
        for record in other.pods()
        if lives(record) and record["pod"]["ip"] == request["address"]
    ]
    try:
        with socket.socket(socket.AF_INET6 if ":" in request["address"] else socket.AF_INET) as one:
            one.bind((request["address"], 0))
        answer["address"] = ""
    except OSError as error:
        answer["address"] = error.strerror or str(error)
    put(answer)


def ports_open_to_all(pids: list[int]) -> list[int]:
    """The TCP ports on which these processes listen at all addresses (proc(5), /proc/net/tcp)."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(str(link.readlink()))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].rpartition(":")
            listens = fields[3] == "0A" and set(address) == {"0"}
            if listens and f"socket:[{fields[9]}]" in sockets:
                ports.add(int(port, 16))
    return sorted(ports)


def public_addresses() -> list[str]:
    """The IPv4 and IPv6 addresses of this host that others can reach over the Internet.

    By proc(5): /proc/net/fib_trie has a local IPv4 address on the line before its type.
    """
    found, last = set(), ""
    for line in Path("/proc/net/fib_trie").read_text().splitlines():
        if line.strip() == "/32 host LOCAL":
            found.add(ipaddress.ip_address(last))
        last = line.rpartition(" ")[2]
    with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            found.add(ipaddress.ip_address(bytes.fromhex(line.split()[0])))
    return sorted(str(address) for address in found if address.is_global)


def without_token(pids: list[int]) -> list[str]:
    """Processes of Ray that were started without its authentication.

    A worker or an agent with a title (`ray::…`) has overwritten a part of its environment, and is
    left out: it inherits that of its raylet.
    """
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            ray = any(item.startswith(b"RAY_ADDRESS=") for item in environment)
            if ray and b"RAY_AUTH_MODE=token" not in environment and not name.startswith("ray::"):
                found.append(name)
    return sorted(set(found))


def without_units() -> str:
    """Why a unit of the user's systemd does not continue after a session; empty: it does."""
    if shutil.which("systemd-run") is None:
        return "it has no systemd-run"
    name = pwd.getpwuid(os.getuid()).pw_name
    # As the manual of loginctl(1) describes `enable-linger`; the file is what logind itself reads.
    if not Path(f"/var/lib/systemd/linger/{name}").exists():
        return f"user {name} does not linger: its systemd ends with its last session"
    return ""


def ray_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return ""


def host_facts() -> dict[str, Any]:
    disk = shutil.disk_usage("/tmp")
    names, trouble = gpus()
    problems = [trouble] if trouble else []
    if disk.used > FULL_DISK * disk.total:
        problems.append(f"disk of /tmp is {100 * disk.used / disk.total:.0f} % full")
    return {
        "cpus": os.cpu_count() or 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": names,
        "problems": problems,
        "kernel": platform.release(),
        "boot": boot(),
    }


def boot() -> str:
    """Another text after each start of the host, or of the container that it is."""
    first = Path("/proc/1/stat").read_text().rpartition(")")[2].split()
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + f"-{first[19]}"


def gpus() -> tuple[list[str], str]:
    """Their names as nvidia-smi lists them, and what it complains about."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], ""
    argv = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=NVIDIA_SMI_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi: {error}"
    lines = done.stdout.splitlines()
    return (lines, "") if done.returncode == 0 else ([], "nvidia-smi: " + " ".join(lines[:1]))
