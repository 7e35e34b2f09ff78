"""The spending guard: a process on this host that ends a cluster at its limits.

`python -m cockpit.backends.lambda_cloud.spending CLUSTER`; `up` starts it if the description has a
total limit or an idle time, before it launches anything, and it ends with the record of the
cluster. It reads the limits from the description at each check. While that cannot be read, the
limits of the record apply.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path

from msgspec.structs import replace

from cockpit.backends.lambda_cloud import cluster, description
from cockpit.backends.lambda_cloud.api import Api, settings
from cockpit.backends.lambda_cloud.description import Cloud
from cockpit.backends.lambda_cloud.limits import Spending
from cockpit.backends.lambda_cloud.plan import money
from cockpit.backends.lambda_cloud.state import State, folder, load, locked
from cockpit.backends.local.pods.process import ProcessId, identify, is_alive, kill
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.description import read
from cockpit.config import paths
from cockpit.format import in_minutes
from cockpit.model.error import CockpitError
from cockpit.sources.ray.dashboard import Dashboard

CHECK_S = 60.0
LOCK_S = 5.0
END_S = 900.0


class Act(Enum):
    KEEP = auto()
    REPORT = auto()
    END = auto()


def decided(state: State, limits: Spending, now_s: float, busy: bool | None) -> tuple[State, Act]:
    """What to do, with the state to record. `busy`: whether a job runs; `None`: not known."""
    if limits.max_total is not None and state.spent(now_s) >= limits.max_total:
        why = f"it has cost {money(state.spent(now_s))}, and max_total is reached"
        return replace(state, notice=why), Act.END
    if busy or limits.idle_s is None:
        return replace(state, idle_since_s=None, notice=""), Act.KEEP
    if busy is None and state.idle_since_s is None:
        return state, Act.KEEP
    since_s = now_s if state.idle_since_s is None else state.idle_since_s
    if now_s - since_s < limits.idle_s:
        return replace(state, idle_since_s=since_s, notice=""), Act.KEEP
    why = f"no job runs on it for more than {in_minutes(limits.idle_s, 0)}"
    act = Act.END if limits.ends_idle else Act.REPORT
    return replace(state, idle_since_s=since_s, notice=why), act


def start(cloud: Cloud) -> None:
    """Start it, if the description has such a limit and it does not run."""
    place = folder(cloud.cluster)
    if cloud.spending.max_total is None and cloud.spending.idle_s is None:
        return
    if (found := _process(place)) is not None and is_alive(found):
        return
    handle = os.open(place / "guard.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, cloud.cluster],
            cwd=Path(__file__).parents[3],  # for `-m` to find this cockpit
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
        )
    finally:
        os.close(handle)
    if (identity := identify(process.pid)) is not None:
        paths.replace_file(place / "guard.pid", f"{identity.pid} {identity.start_ticks}")


def runs(name: str) -> bool:
    found = _process(folder(name))
    return found is not None and is_alive(found)


def process_of(name: str) -> ProcessId | None:
    return _process(folder(name))


def stop(guard: ProcessId) -> None:
    kill(guard, signal.SIGTERM)


def _process(place: Path) -> ProcessId | None:
    try:
        pid, ticks = (place / "guard.pid").read_text().split()
        return ProcessId(int(pid), int(ticks))
    except (OSError, ValueError):
        return None


async def watch(name: str) -> None:
    """Until the record is removed. A failure is logged, and the next check repeats it.

    That is any failure: without a guard, the cluster would cost money without a limit.
    """
    while True:
        try:
            state = load(name)
            if state is None or await _checked(name, state):
                return
        except CockpitError as error:
            log(error.what_and_why)
        except Exception:  # noqa: BLE001 - logged; the next check repeats it
            log(traceback.format_exc())
        await asyncio.sleep(CHECK_S)


async def _checked(name: str, state: State) -> bool:
    """One check; returns whether the cluster was ended."""
    limits, key_file = _described(state)
    busy = await _busy(name) if limits.idle_s is not None else None
    with locked(name, LOCK_S) as store:
        if store.state is None:
            return True
        newest = replace(store.state, spending=limits, api_key_file=key_file)
        changed, act = decided(newest, limits, time.time(), busy)
        if act is not Act.END:
            if changed != store.state:
                store.changed(changed)
            if act is Act.REPORT and changed.notice != state.notice:
                log(f"Cluster {name}: {changed.notice}.")
            return False
        # Not recorded first: a full disk must not prevent the end.
        log(f"Ending cluster {name}: {changed.notice}.")
        api = Api(settings(key_file))
        try:
            removed = await cluster.down(api, store, END_S, log)
        finally:
            await api.aclose()
    said = f"Ended by the spending guard: {changed.notice}. Cost: {money(removed.cents)}."
    paths.replace_file(folder(name) / "ended", said)
    return True


def _described(state: State) -> tuple[Spending, str]:
    """The limits and the file of the API key: the description's, or those of the last check."""
    try:
        cloud = description.read(state.description)
    except CockpitError as error:
        log(f"{error.what} The limits of the last check apply.")
        return state.spending, state.api_key_file
    return cloud.spending, cloud.api_key_file


async def _busy(name: str) -> bool | None:
    """Whether a job runs or waits; `None`: the dashboard did not answer."""
    try:
        backend = SshBackend(read(str(cluster.hosts_file(name))))
    except CockpitError:  # Ray was never started: `up` has failed, or was killed
        return None
    try:
        async with Dashboard(await backend.dashboard()) as dashboard:
            return any(not job.status.is_over for job in await dashboard.jobs())
    except CockpitError as error:
        log(f"The jobs of cluster {name} are not known: {error.what}")
        return None
    finally:
        await backend.aclose()


def log(line: str) -> None:
    with suppress(OSError):  # the log's disk is full: the guard continues
        print(time.strftime("%Y-%m-%d %H:%M:%S"), line, flush=True)


if __name__ == "__main__":
    asyncio.run(watch(sys.argv[1]))
