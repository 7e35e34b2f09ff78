"""What is set up and checked on each instance over SSH, before Ray is started there."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from cockpit.backends.lambda_cloud.description import Cloud
from cockpit.backends.lambda_cloud.instances import NOFILE
from cockpit.backends.private_folder import private_folder
from cockpit.backends.ssh.connection import Connection
from cockpit.backends.ssh.description import Host, Hosts
from cockpit.config import bundled
from cockpit.format import in_seconds, plural
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

AGAIN_S = 3.0
"""Between two attempts to connect: sshd starts late at the first boot, and gets its key later."""
WARNING = "warning: "


class Step(Struct, frozen=True):
    what: str
    """In the plan, after "On each instance:"."""
    script: str
    """For sh. A line that begins with WARNING is shown; other output only if it fails."""
    data: bytes = b""
    """Its standard input."""
    needs_gpu: bool = False


def steps(cloud: Cloud) -> tuple[Step, ...]:
    python = shlex.quote(cloud.interpreter)
    found = [
        Step(
            "wait until cloud-init has finished its first boot",
            "if command -v cloud-init >/dev/null; then cloud-init status --wait >/dev/null; fi; :",
        ),
        Step(
            "check the driver of the GPUs",
            "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader",
            needs_gpu=True,
        ),
        Step(
            "check that the clock is synchronized, and the limit of open files",
            "n=$(ulimit -Hn); case $n in unlimited) ;; *) "
            f'[ "$n" -ge {NOFILE} ] || echo "{WARNING}the limit of open files is $n";; esac; '
            "s=$(timedatectl show -p NTPSynchronized --value 2>/dev/null) || s=unknown; "
            f'[ "$s" = yes ] || echo "{WARNING}the clock is not synchronized by NTP ($s)"',
        ),
    ]
    if not cloud.python:
        found.append(_venv(cloud))
    if any(package.startswith("torch") for package in cloud.packages) and not cloud.python:
        found.append(
            Step(
                "check that torch finds CUDA",
                f"{python} -c 'import torch; assert torch.cuda.is_available(), "
                '"torch finds no CUDA"\'',
                needs_gpu=True,
            )
        )
    return tuple(found)


def _venv(cloud: Cloud) -> Step:
    constraints = bundled.project_file("constraints.txt").read_bytes()
    asked = hashlib.sha256(constraints + "\n".join(cloud.packages).encode()).hexdigest()[:16]
    venv = shlex.quote(cloud.venv)
    packages = shlex.join(cloud.packages)
    # The stamp is written last: an installation that was interrupted is repeated.
    script = (
        f'set -e; v={venv}; [ "$(cat $v/.cockpit 2>/dev/null)" != {asked} ] || exit 0; '
        "if command -v uv >/dev/null; then "
        "uv venv -q --allow-existing $v; pip='uv pip install -q --python '$v/bin/python; "
        "else python3 -m venv $v; "
        'pip="$v/bin/python -m pip install -q --disable-pip-version-check"; fi; '
        f"head -c {len(constraints)} >$v/constraints.txt; "
        + (f"$pip -c $v/constraints.txt {packages}; " if packages else "")
        + f"echo {asked} >$v/.cockpit"
    )
    what = f"install {plural(len(cloud.packages), 'package')} in {cloud.venv} by constraints.txt"
    return Step(what, script, constraints)


async def run(
    cloud: Cloud,
    hosts: Hosts,
    targets: Sequence[Host],
    timeout_s: float,
    progress: Callable[[str], None],
) -> None:
    """Connect to the targets and run the steps, all hosts at the same time. Raises CockpitError."""
    deadline = time.monotonic() + timeout_s
    try:
        with private_folder() as folder:
            async with asyncio.timeout(timeout_s):
                results = await asyncio.gather(
                    *(_one(cloud, hosts, host, folder, deadline, progress) for host in targets),
                    return_exceptions=True,
                )
    except TimeoutError:
        raise CockpitError(
            f"The instances are not set up after {in_seconds(timeout_s, 0)}.",
            todo=f"Run it again with more time: cockpit up --on lambda {cloud.path} --timeout S",
        ) from None
    failed = [error for error in results if isinstance(error, BaseException)]
    for error in failed:
        raise error


async def _one(
    cloud: Cloud,
    hosts: Hosts,
    host: Host,
    folder: Path,
    deadline: float,
    progress: Callable[[str], None],
) -> None:
    connection = Connection(host, folder, f"h{hosts.hosts.index(host)}", hosts.ssh_config)
    shown = ""
    while True:
        try:
            await connection.open()
            break
        except CockpitError as error:
            if time.monotonic() + AGAIN_S > deadline:
                raise
            if error.what != shown:
                progress(f"Waiting: {error.what}")
                shown = error.what
            await asyncio.sleep(AGAIN_S)
    try:
        for step in steps(cloud):
            if step.needs_gpu and not host.gpus:
                continue
            result = await connection.run(["sh", "-c", step.script], data=step.data)
            lines = (result.stdout + result.stderr).splitlines()
            for line in lines:
                if line.startswith(WARNING):
                    progress(f"{host.name}: {one_line(line)}")
            if result.exit_code:
                said = [line for line in lines if line.strip()]
                raise CockpitError(
                    f"Host {host.name} could not be set up: {step.what} failed.",
                    one_line(said[-1]) if said else f"exit code {result.exit_code}",
                    f"To continue, run up again; to end it: cockpit down --on lambda {cloud.path}",
                )
        progress(f"Set up {host.name}.")
    finally:
        await connection.aclose()
