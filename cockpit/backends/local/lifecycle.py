"""Start and inspect a local cluster, and delete it with all its traces."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import to_builtins

from cockpit.backends.local import files as local_files
from cockpit.backends.local.address import choose_network, choose_ports
from cockpit.backends.local.files import ClusterFiles, RunFiles
from cockpit.backends.local.notices import NoticeReader
from cockpit.backends.local.pods.pod_logs import tail
from cockpit.backends.local.pods.process import CLUSTER_VARIABLE, POD_VARIABLE
from cockpit.backends.local.pods.ray_start import OBJECT_STORE_BYTES
from cockpit.backends.local.removal import down, uninterrupted
from cockpit.backends.local.spec import (
    HEAD_GROUP,
    ClusterSpec,
    GroupSpec,
    check_groups,
    check_name,
)
from cockpit.backends.local.state import LocalCluster, read_cluster
from cockpit.config import paths
from cockpit.model.cluster import ClusterHealth, PodPhase
from cockpit.model.error import CockpitError
from cockpit.model.recovery import DEFAULT, RecoveryProfile
from cockpit.model.text import clean, one_line

START_TIMEOUT_S = 240.0
"""On a busy host; a pod that cannot start is reported before."""
POD_DISK_BYTES = 100_000_000
"""The size that a pod writes to /tmp in a day: logs and unpacked working directories."""
FAILURES_ALLOWED = 1
"""Failed starts of worker pods of one group before `up` gives up; of the head, none."""
POLL_S = 0.1
OPERATOR_START_S = 15.0
"""A cluster that has no status for longer than this was given up by its starter."""


class StartError(CockpitError):
    """Something did not start. `log` is the end of its log, which has been removed when this is
    raised.
    """

    def __init__(self, what: str, log: Sequence[str], todo: str = "") -> None:
        self.log = tuple(line for line in map(clean, log) if line)
        super().__init__(what, " / ".join(one_line(line) for line in self.log[-2:]), todo)


async def up(
    name: str,
    groups: Sequence[GroupSpec],
    *,
    progress: Callable[[str], None] = lambda line: None,
    claimed: Callable[[], None] = lambda: None,
    timeout_s: float = START_TIMEOUT_S,
    recovery: RecoveryProfile = DEFAULT,
) -> LocalCluster:
    """Start a head and the groups' workers; returns when all of them are alive in Ray.

    `progress` is called with a line for each step; `claimed` once the name is reserved. Raises
    UsageError for a bad name or group, CockpitError when the cluster is already up or the host is
    too small, and StartError when a process does not start; its log is then sent to `progress` as
    well. After a failure or cancellation, nothing is left.
    """
    import asyncio

    check_name(name)
    groups = check_groups(groups)
    _check_machine(sum(group.desired for group in groups) + 1)
    files = ClusterFiles.of(name)
    is_ours = False
    try:
        with uninterrupted():
            _claim(name, files)
            is_ours = True
            claimed()
        _write(name, groups, files, recovery)
        operator = _start_operator(files)
        reader = NoticeReader(files.events)
        deadline = time.monotonic() + timeout_s
        while True:
            for notice in reader.read():
                progress(f"{notice.name}: {notice.message}")
            cluster = _check_start(name, operator, late=time.monotonic() > deadline)
            if cluster.health is ClusterHealth.READY:
                return cluster
            await asyncio.sleep(POLL_S)
    except BaseException as error:
        # Cancelled and interrupted too: what was started would be left running otherwise.
        with uninterrupted():
            if is_ours and files.directory.is_dir():
                try:
                    down(name)
                except CockpitError as left:  # the first error is the cause
                    progress(f"Warning: {left.what_and_why} Run: cockpit local down {name}")
            for line in error.log if isinstance(error, StartError) else ():
                progress(line)
        raise


def _claim(name: str, files: ClusterFiles) -> None:
    """Make the state directory: only one of two at the same time can."""
    try:
        local_files.make_private(files.directory)
    except FileExistsError:
        there = read_cluster(name)
        if there is not None and there.status is None and _is_fresh(files.directory):
            raise CockpitError(
                f"Local cluster {name} is being started right now.",
                "Another user or a second start of the same asked for it.",
                "Wait for it, or choose another name.",
            ) from None
        if there is not None and not there.operator_alive:
            raise CockpitError(
                f"Local cluster {name} is left over from before.",
                "Its operator is not running.",
                f"Remove it first: cockpit local down {name}",
            ) from None
        raise CockpitError(
            f"Local cluster {name} is already up.",
            f"It is {there.health.value}." if there else "",
            f"Open it with: cockpit --local --cluster {name}; remove it with: "
            f"cockpit local down {name}",
        ) from None


def _is_fresh(directory: Path) -> bool:
    try:
        return time.time() - directory.stat().st_mtime < OPERATOR_START_S
    except FileNotFoundError:
        return False


def _write(
    name: str, groups: tuple[GroupSpec, ...], files: ClusterFiles, recovery: RecoveryProfile
) -> None:
    uid = secrets.token_hex(4)
    gcs_port, dashboard_port, client_port = choose_ports(3)
    spec = ClusterSpec(
        name=name,
        uid=uid,
        network=choose_network(),
        gcs_port=gcs_port,
        dashboard_port=dashboard_port,
        client_port=client_port,
        created_s=time.time(),
        python=sys.executable,
        groups=groups,
        recovery=recovery.name,
    )
    # First, so that `down` finds everything that is created later.
    paths.replace_file(files.spec, local_files.as_text(to_builtins(spec)))
    paths.replace_file(files.token, secrets.token_hex(32))
    files.logs.mkdir(mode=0o700)
    local_files.make_run_dir(RunFiles.of(uid))


def _start_operator(files: ClusterFiles) -> subprocess.Popen[bytes]:
    cluster = read_cluster(files.directory.name)
    assert cluster is not None
    assert cluster.spec is not None
    package = Path(__file__).parents[3]
    handle = os.open(files.operator_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "cockpit.backends.local.operator", str(files.directory)],
            # For `-m` to find this cockpit; not by PYTHONPATH, which the pods would inherit.
            cwd=package,
            env=os.environ | {CLUSTER_VARIABLE: cluster.spec.uid, POD_VARIABLE: ""},
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
        )
    finally:
        os.close(handle)


def _check_start(name: str, operator: subprocess.Popen[bytes], *, late: bool) -> LocalCluster:
    """The current state of the cluster, while it may still start."""
    cluster = read_cluster(name)
    if cluster is None:
        raise CockpitError(f"Local cluster {name} was deleted while it started.")
    files = ClusterFiles(cluster.directory)
    if (exit_code := operator.poll()) is not None:
        raise StartError(
            f"The operator of local cluster {name} ended with exit code {exit_code}.",
            _log_end(files.operator_log),
        )
    failed = [pod for pod in cluster.pods if pod.phase is PodPhase.FAILED]
    # On a busy host a worker gives up on a head that starts slowly, and is replaced; only failures
    # beside a healthy head mean that no worker can start.
    has_head = cluster.head is not None and cluster.head.ready
    for pod in failed:
        alike = sum(other.group == pod.group for other in failed)
        if pod.group == HEAD_GROUP or (has_head and alike > FAILURES_ALLOWED):
            raise StartError(
                f"Pod {pod.name} of local cluster {name} does not start: {pod.reason}",
                _log_end(files.pod_log(pod.name)),
            )
    if late:
        late_pods = [pod for pod in cluster.pods if not pod.ready]
        log = files.pod_log(late_pods[0].name) if late_pods else files.operator_log
        raise StartError(
            f"Local cluster {name} did not start in time: {cluster.message}",
            _log_end(log),
            "If this host is busy, try again later, or start fewer workers.",
        )
    return cluster


def _check_machine(pods: int) -> None:
    """Raises CockpitError when this machine cannot hold a cluster of this many pods."""
    if importlib.util.find_spec("ray") is None:
        raise CockpitError(
            "Ray is not installed in cockpit's environment.",
            f"{sys.executable} has no module named ray.",
            f"Install it: {sys.executable} -m pip install 'cockpit[train]'",
        )
    if sys.platform != "linux":
        raise CockpitError(
            "A local cluster needs Linux.", "Its pods have addresses in 127.0.0.0/8."
        )
    needed = pods * (POD_DISK_BYTES + OBJECT_STORE_BYTES)
    if (free := shutil.disk_usage("/tmp").free) < needed:
        raise CockpitError(
            "There is too little free space in /tmp for a local cluster.",
            f"{pods} pods need {needed / 1e6:.0f} MB; {free / 1e6:.0f} MB are free.",
            "Free some space, or start fewer workers.",
        )


def _log_end(log: Path) -> list[str]:
    return tail(log, 15)
