"""Clusters on hosts for tests: a real sshd a host, and real Ray or a program in its place."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.description import Hosts, read
from cockpit.launch import submission
from cockpit.model.recovery import RecoveryProfile
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from tests.host_spaces import Network, host_spaces
from tests.local_cluster import LIGHT_RUN, separate_state
from tests.sshd import Sshd, hosts

RANKS = 2
"""Of `running_job`."""
START_S = 600.0
OBJECT_STORE_BYTES = 80_000_000
"""Ray's least is 75 MB."""
SLEEPS = f"""#!/bin/sh
if [ "$2" = ray.scripts.scripts ]; then echo "ray $*"; echo '[state-dump] no'; exec sleep 600; fi
exec {sys.executable} "$@"
"""
"""In place of a Python with Ray: a node that does nothing."""


def description(
    listed: Sequence[Sshd], *, python: str = sys.executable, replicas: int = 1
) -> Hosts:
    """A head, and the other hosts in group `gpu`: `replicas` of them are used at first."""
    folder = listed[0].config.parent
    tables = [
        f'cluster = "{folder.name[-8:].lower().strip("_").replace("_", "-")}"',
        'ssh_config = "ssh_config"',
        f'python = "{python}"',
        f"port = {listed[0].port}",
        *([f"[replicas]\ngpu = {replicas}"] if len(listed) > 1 else []),
    ]
    for number, host in enumerate(listed):
        tables += ["[[host]]", f'name = "host-{number}"', f'address = "{host.address}"']
        tables += [f"object_store_bytes = {OBJECT_STORE_BYTES}"]
        tables += ['group = "gpu"', "cpus = 1"] if number else ["head = true"]
    path = folder / "hosts.toml"
    path.write_text("\n".join(tables) + "\n")
    return read(str(path))


def sleeping_python(folder: Path) -> str:
    path = folder / "python"
    path.write_text(SLEEPS)
    path.chmod(0o755)
    return str(path)


def stand_in_python(folder: Path) -> str:
    """In place of a Python with Ray: one that starts `ray_stand_in`."""
    path = folder / "python"
    script = Path(__file__).with_name("ray_stand_in.py")
    path.write_text(
        f'#!/bin/sh\nif [ "$2" = ray.scripts.scripts ]; then shift 3; set -- {script} "$@"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


@contextmanager
def running_hosts(count: int = 3, *, real: bool) -> Iterator[tuple[Hosts, list[Sshd]]]:
    """A cluster that is ready, taken down at the end. Not inside a running loop."""
    with separate_state(), hosts(count) as listed:
        python = sys.executable if real else stand_in_python(listed[0].config.parent)
        described = description(listed, python=python)
        asyncio.run(lifecycle.up(described, "fast", 300.0, print))
        try:
            yield described, listed
        finally:
            asyncio.run(lifecycle.down(described))


@contextmanager
def running_job(*names: str, recovery: RecoveryProfile) -> Iterator[tuple[Network, Session]]:
    """A run of RANKS ranks with real Ray on hosts that are namespaces, the first one its head."""
    with separate_state(), host_spaces(*names) as network:
        described = description([host.sshd for host in network.hosts], replicas=RANKS)
        asyncio.run(lifecycle.up(described, recovery.name, START_S, print))
        backend = SshBackend(described)
        settings = LIGHT_RUN | {"storage_path": str(network.shared), "max_failures": "-1"}
        spec = replace(submission.bundled_spec("checkpointed", settings, RANKS), recovery=recovery)

        async def launch() -> None:
            async with Dashboard(backend.dashboard) as dashboard:
                await submission.launch(dashboard, spec)

        try:
            with builder.session_on(backend) as session:
                session.call(launch())
                yield network, session
        finally:
            asyncio.run(lifecycle.down(described))


def trains(store: Store) -> bool:
    """Whether all ranks step, with a checkpoint of this attempt."""
    run = current_run(store)
    attempt = run.attempt if run else None
    return (
        run is not None
        and attempt is not None
        and attempt.ended_s is None
        and attempt.first_step_s is not None
        and len(attempt.placements) == RANKS
        and (run.checkpoint_s or 0.0) > attempt.first_step_s
    )
