"""An image with the programs of this machine, under any name, where there is no registry.

Its layer has only folders and a user. /usr, Python, the virtual environment and the packages
`training` and `cockpit` are added by containerd to each container, so that a pod needs no volumes
for them and runs from the manifests as they are.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CODE = "/opt/cockpit"
"""Where the image `cockpit-train` has the package `training`: manifests/image/Dockerfile."""
USER = 1000
HOME = "/home/ray"
_HOST_FOLDERS = ("/usr", "/etc/alternatives")
"""Programs such as awk lead from the one through the other."""
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_FOLDERS = ("usr", "etc", "proc", "sys", "dev", "tmp", "run", "var", "var/tmp", "root", "opt")
_ROOT = Path(__file__).parents[2]
OF_IMAGE = {
    f"{CODE}/bin": str(_ROOT / "manifests" / "image" / "bin"),
    f"{CODE}/training": str(_ROOT / "training"),
}
"""What the image has beside installed packages. The programs come before Ray's in PATH."""


def host_folders() -> list[str]:
    """The host directories that this Python needs; none is inside another.

    A link to a virtual environment needs its target too: its programs name their interpreter there.
    """
    own = (sys.base_prefix, sys.prefix)
    wanted = [*_HOST_FOLDERS, *map(os.path.realpath, own), *own]
    chosen: list[str] = []
    for folder in dict.fromkeys(wanted):
        if Path(folder).is_dir() and not any(Path(folder).is_relative_to(one) for one in chosen):
            chosen.append(folder)
    return chosen


def training_image(name: str) -> bytes:
    """The archive of an image that is used as `cockpit-train` is."""
    files = {
        "etc/passwd": f"root:x:0:0::/root:/bin/bash\nray:x:{USER}:{USER}::{HOME}:/bin/bash\n",
        "etc/group": f"root:x:0:\nray:x:{USER}:\n",
        "etc/nsswitch.conf": "hosts: files dns\n",
    }
    config = {
        "Env": [
            f"PATH={CODE}/bin:{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            f"PYTHONPATH={CODE}",
            "PYTHONUNBUFFERED=1",
        ],
        "User": f"{USER}:{USER}",
        "WorkingDir": HOME,
        "Cmd": ["python"],
    }
    data = {path: text.encode() for path, text in files.items()}
    return archive(name, config, data, homes=("home", HOME.strip("/"), CODE.strip("/")))


def with_host_mounts(spec: Mapping[str, Any]) -> dict[str, Any]:
    """An OCI runtime specification in which each container has the host's programs, read-only."""
    sources = {folder: folder for folder in host_folders()}
    sources |= {**OF_IMAGE, f"{CODE}/cockpit": str(_ROOT / "cockpit")}
    mounts = [
        {
            "destination": inside,
            "source": outside,
            "type": "bind",
            "options": ["rbind", "ro", "nosuid"],
        }
        for inside, outside in sources.items()
    ]
    return {**spec, "mounts": [*spec.get("mounts", ()), *mounts]}


def archive(
    name: str,
    config: Mapping[str, Any],
    files: Mapping[str, bytes],
    *,
    mode: int = 0o644,
    homes: Sequence[str] = (),
) -> bytes:
    """An image of one layer, in the form that `docker save` writes. `homes` belong to USER."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in (*_FOLDERS, *homes):
            item = tarfile.TarInfo(folder)
            item.type, item.mode = tarfile.DIRTYPE, 0o1777 if folder.endswith("tmp") else 0o755
            if folder in homes:
                item.uid = item.gid = USER
            tar.addfile(item)
        for link, target in _LINKS.items():
            item = tarfile.TarInfo(link)
            item.type, item.linkname = tarfile.SYMTYPE, target
            tar.addfile(item)
        for path, data in files.items():
            _add(tar, path, data, mode)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        _add(tar, "config.json", json.dumps(described).encode())
        _add(tar, "layer.tar", layer.getvalue())
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return whole.getvalue()


def _add(tar: tarfile.TarFile, path: str, data: bytes, mode: int = 0o644) -> None:
    item = tarfile.TarInfo(path)
    item.size, item.mode = len(data), mode
    tar.addfile(item, io.BytesIO(data))
