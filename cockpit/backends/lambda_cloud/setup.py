"""The setup of instances that boot, over SSH."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cockpit.backends.lambda_cloud.description import Cloud
from cockpit.backends.private_folder import private_folder
from cockpit.backends.ssh import setup
from cockpit.backends.ssh.connection import Connection
from cockpit.backends.ssh.description import Host, Hosts
from cockpit.backends.ssh.setup import Step
from cockpit.format import in_seconds
from cockpit.model.error import CockpitError

AGAIN_S = 3.0
"""Between two attempts to connect: sshd starts late at the first boot, and gets its key later."""


def steps(cloud: Cloud) -> tuple[Step, ...]:
    return setup.steps(cloud.interpreter, cloud.packages, installs=not cloud.python)


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
    todo = f"To continue, run up again; to end it: cockpit down --on lambda {cloud.path}"
    try:
        await setup.run(connection, steps(cloud), progress, todo)
    finally:
        await connection.aclose()
