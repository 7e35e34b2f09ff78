"""Print facts of this pod as one JSON document. Imports no library of the job.

    probe.py facts REQUEST
    probe.py seen REQUEST
    probe.py remove REQUEST

REQUEST is a JSON object. `facts` takes the names of `modules`, the path `storage` and the name of a
`marker`, a file that it writes there; a background process removes it after `keep_s` seconds.
`facts` and `seen` print which of the files `names` are visible in the folder of `storage`, and wait
up to `within_s` seconds for all of them. `remove` deletes the files `names`.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cockpit.drills.pod_scripts.linux.cgroup import memory_limit, memory_used
from cockpit.drills.pod_scripts.linux.process import Failed, ended, leave_behind

PACKAGES = ("ray", "torch")
LOOK_S = 0.1


def facts(request: dict[str, Any]) -> dict[str, Any]:
    began_s = time.time()
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "versions": {name: version_of(name) for name in PACKAGES},
        "missing": [name for name in request["modules"] if not has_module(name)],
        "memory": memory(),
        "shm": room(Path("/dev/shm")),
        "disk": room(Path(os.environ.get("RAY_TMPDIR") or "/tmp")),
        "storage": storage(request) if request["storage"] else None,
        "gpus": gpus(),
    }
    return found | {"began_s": began_s, "now_s": time.time()}


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def has_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def memory() -> dict[str, Any]:
    """The container's limit and use, or those of the host where there is no limit."""
    try:
        return {"size_bytes": memory_limit(), "used_bytes": memory_used(), "host": ""}
    except (Failed, OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        kib = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
        used = kib["MemTotal"] - kib["MemAvailable"]
        host = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return {"size_bytes": kib["MemTotal"] << 10, "used_bytes": used << 10, "host": host}


def room(path: Path) -> dict[str, Any] | None:
    """Of the file system; None where there is no such folder."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return {
        "path": str(path),
        "size_bytes": found.f_blocks * found.f_frsize,
        "free_bytes": found.f_bavail * found.f_frsize,
    }


def storage(request: dict[str, Any]) -> dict[str, Any]:
    """The file system of the storage path, and whether this pod can write to it."""
    folder = nearest(request["storage"])
    found: dict[str, Any] = {"folder": str(folder), "kind": kind_of(folder), "error": ""}
    found["seen"] = []
    found["room"] = room(folder)
    if name := request["marker"]:
        try:
            with (folder / name).open("x") as opened:
                opened.write(name)
                opened.flush()
                os.fsync(opened.fileno())
        except OSError as error:
            found["error"] = error.strerror or type(error).__name__
        else:
            found["seen"] = seen(request)
    return found


def nearest(path: str) -> Path:
    """The folder, or the nearest one above it: a job creates its folder."""
    folder = Path(path).expanduser().absolute()
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def kind_of(folder: Path) -> str:
    """The type of the file system that is mounted there, such as `nfs4` or `overlay`."""
    kind, longest = "", -1
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        mount, name = line.split()[1:3]
        if len(mount) > longest and Path(mount) in (folder, *folder.parents):
            kind, longest = name, len(mount)
    return kind


def gpus() -> int:
    """GPUs that a process of this pod sees, without asking the driver."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return len([name for name in chosen.split(",") if name.strip() not in ("", "-1")])
    return sum(entry.name[6:].isdigit() for entry in Path("/dev").glob("nvidia[0-9]*"))


def seen(request: dict[str, Any]) -> list[str]:
    """By name: the listing of a network file system may be from a cache."""
    folder = nearest(request["storage"])
    until = time.monotonic() + request["within_s"]
    while True:
        found = [name for name in request["names"] if (folder / name).is_file()]
        if len(found) == len(request["names"]) or time.monotonic() >= until:
            return found
        time.sleep(LOOK_S)


def keep(path: Path, seconds: float) -> None:
    """Remove the marker after that time, unless it has been removed."""
    until = time.monotonic() + seconds
    while path.exists() and time.monotonic() < until:
        time.sleep(LOOK_S)
    path.unlink(missing_ok=True)


def main() -> None:
    verb, request = sys.argv[1], json.loads(sys.argv[2])
    if verb == "remove":
        for name in request["names"]:
            (nearest(request["storage"]) / name).unlink(missing_ok=True)
        return
    if verb == "seen":
        print(json.dumps(seen(request)))
        return
    found = facts(request)
    print(json.dumps(found))
    written = found["storage"] and request["marker"] and not found["storage"]["error"]
    if written and not leave_behind():
        keep(Path(found["storage"]["folder"]) / request["marker"], request["keep_s"])


sys.exit(ended(main))
