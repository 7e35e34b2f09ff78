"""A real local Ray cluster for tests, with separate state, removed at the end."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from cockpit.backends.local import GroupSpec, LocalBackend, down, list_clusters, up
from cockpit.backends.local.lifecycle import StartError
from cockpit.launch import submission
from cockpit.launch.submission import LaunchSpec
from cockpit.model.recovery import DEFAULT, RecoveryProfile
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard

LIGHT_RUN = {
    "model": "mlp",
    "width": "8",
    "min_step_s": "0.1",
    "batch_size": "32",
    "epochs": "100000",
}
"""Settings of a bundled job that takes steps for as long as it is let, and leaves the CPU to other
tests. An epoch of two ranks, and so a checkpoint, takes 2.2 s."""
LIGHT_FLAGS = [f"--set={key}={value}" for key, value in LIGHT_RUN.items()]

RAY_GAVE_UP = "The current node timed out during startup"
"""Ray waits 30 s for a raylet (ray/_private/node.py): not always enough beside other tests."""
ONE_WORKER = (GroupSpec("gpu", replicas=1, min=0, max=2),)


@contextmanager
def separate_state() -> Iterator[Path]:
    """XDG_STATE_HOME in a new directory; clusters that still exist at the end are deleted.

    The directory is named so that conftest does not change the variable.
    """
    before = os.environ.get("XDG_STATE_HOME")
    state_home = Path(tempfile.mkdtemp(prefix="cockpit-tests-"))
    os.environ["XDG_STATE_HOME"] = str(state_home)
    try:
        yield state_home
    finally:
        try:
            for cluster in list_clusters():
                down(cluster.name)
        finally:
            if before is None:
                del os.environ["XDG_STATE_HOME"]
            else:
                os.environ["XDG_STATE_HOME"] = before
            shutil.rmtree(state_home)


@contextmanager
def running_cluster(
    name: str = "test",
    groups: Sequence[GroupSpec] = ONE_WORKER,
    *,
    recovery: RecoveryProfile = DEFAULT,
) -> Iterator[LocalBackend]:
    """A cluster that is ready, and its backend. Not inside a running loop: for sync fixtures."""
    with separate_state():
        try:
            asyncio.run(up(name, groups, recovery=recovery))
        except StartError as error:
            if RAY_GAVE_UP not in str(error):
                raise
            asyncio.run(up(name, groups, recovery=recovery))
        yield LocalBackend(name)


@contextmanager
def running_job(
    spec: LaunchSpec, name: str, groups: Sequence[GroupSpec], recovery: RecoveryProfile
) -> Iterator[tuple[Session, LocalBackend]]:
    """A cluster to which the job was submitted, with its recovery profile, and a session on it."""
    with running_cluster(name, groups, recovery=recovery) as backend:

        async def launch() -> None:
            async with Dashboard(backend.dashboard) as dashboard:
                await submission.launch(dashboard, replace(spec, recovery=recovery))

        with builder.session_on(backend) as session:
            session.call(launch())
            yield session, backend


async def until(condition: Callable[[], bool], timeout_s: float = 240.0) -> None:
    """Wait for it, or fail the test."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.05)
