"""`cockpit doctor`: what cockpit needs here, what is missing, and how to fix it."""

from __future__ import annotations

import argparse
import locale
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from cockpit.backends.local import list_clusters
from cockpit.cli.cluster.check import Check, answers
from cockpit.cli.options import cluster_choice, connect
from cockpit.cli.output import tables
from cockpit.config import paths
from cockpit.model.cluster import ClusterHealth
from cockpit.model.error import ExitCode

NEEDED_DISK_BYTES = 2 << 30
NEEDED_SHM_BYTES = 512 << 20
LOCAL_ONLY = ("disk for local clusters", "shared memory", "ray", "torch")
"""Checks of what only a local cluster needs."""


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    kind = args.where.kind
    has_kubeconfig = cluster_choice.kubernetes_is_configured()
    # Without Ray, cockpit was installed for remote clusters, and needs none of LOCAL_ONLY.
    has_ray = find_spec("ray") is not None
    checks = [*machine(), *packages()]
    if kind not in ("", "local") or (kind == "" and has_kubeconfig and not has_ray):
        checks = [check for check in checks if check.name not in LOCAL_ONLY]
    if kind == "ssh":
        from cockpit.cli.cluster import doctor_hosts

        checks += doctor_hosts.checks(args.where)
    else:
        checks += clusters(args)
    if kind == "kuberay" or (kind == "" and (has_kubeconfig or not has_ray)):
        from cockpit.cli.cluster import doctor_kubernetes

        checks += doctor_kubernetes.checks(args.where, read_only=args.read_only)
    rows = [tables.as_json(check) | ({"fix": ""} if check.ok else {}) for check in checks]
    tables.print_rows(rows, ("name", "ok", "found", "fix"), args.output)
    return int(ExitCode.DONE if all(check.ok for check in checks) else ExitCode.FAILED)


def machine() -> Iterator[Check]:
    yield Check(
        "python",
        sys.version_info >= (3, 11),
        ".".join(map(str, sys.version_info[:3])),
        "Install Python 3.11 or newer.",
    )
    yield Check(
        "linux",
        sys.platform == "linux",
        sys.platform,
        "Local clusters need Linux: addresses 127.x and /proc.",
    )
    encoding = locale.getpreferredencoding(False)
    yield Check(
        "utf-8 terminal",
        encoding.lower().replace("-", "") == "utf8",
        f"{encoding}, TERM={os.environ.get('TERM', 'unset')}",
        "export LC_ALL=C.UTF-8, or COCKPIT_SYMBOLS=ascii",
    )
    for name, where, needed in (
        ("disk for local clusters", "/tmp", NEEDED_DISK_BYTES),
        ("shared memory", "/dev/shm", NEEDED_SHM_BYTES),
    ):
        free = shutil.disk_usage(where).free if Path(where).is_dir() else 0
        yield Check(
            name,
            free >= needed,
            f"{free / 2**30:.1f} GiB free in {where}",
            f"Free up space: at least {needed / 2**30:.1f} GiB must be free.",
        )
    state = paths.state_dir()
    parent = next(path for path in (state, *state.parents) if path.exists())
    yield Check(
        "state directory", os.access(parent, os.W_OK), str(state), f"Make {parent} writable."
    )


def packages() -> Iterator[Check]:
    for name, fix in (
        ("textual", "pip install cockpit"),
        ("httpx", "pip install cockpit"),
        ("ray", "pip install 'cockpit[train]', for local clusters and bundled jobs"),
        ("torch", "pip install 'cockpit[train]', for the bundled jobs"),
    ):
        try:
            yield Check(name, True, version(name))
        except PackageNotFoundError:
            yield Check(name, False, "not installed", fix)


def clusters(args: argparse.Namespace) -> Iterator[Check]:
    """Check each local cluster, and whether its dashboard answers with the stored token."""
    if args.where.kind == "address":
        backend = connect.backend(args)
        yield answers(f"dashboard of {backend.ref.name}", backend)
    if args.where.kind not in ("", "local"):
        return
    from cockpit.backends.local import LocalBackend

    for cluster in list_clusters():
        well = cluster.health is ClusterHealth.READY
        yield Check(
            f"cluster {cluster.name}",
            well,
            cluster.message or cluster.health.value,
            f"cockpit local down {cluster.name}, then up again",
        )
        if well:
            yield answers(f"dashboard of {cluster.name}", LocalBackend(cluster.name))
