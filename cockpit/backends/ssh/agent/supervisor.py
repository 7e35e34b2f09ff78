"""The supervisor of a pod: it starts `ray start`, and records how it ended."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cockpit.backends.local.pods.pod_logs import how_it_ended
from cockpit.backends.local.pods.process import CLUSTER_VARIABLE, POD_VARIABLE, end, identify
from cockpit.backends.ssh.agent.host import without_units
from cockpit.backends.ssh.agent.place import (
    Place,
    ended_s,
    lives,
    read_json,
    remove_pod,
    write_token,
)
from cockpit.backends.ssh.agent.streams import put
from cockpit.model.error import CockpitError, UsageError

FAILED_SHOWN_S = 15.0
"""How long an ended pod remains in the list, so that its end is visible."""
GCS_CHECK_S = 0.05
STOP_CHECK_S = 0.25
"""How often the supervisor looks for a request to stop; the end of `ray start` wakes it at once."""
GCS_WAIT_S = 600.0
SYSTEMD_S = 30.0
LINGER = "Run there: loginctl enable-linger"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What systemd takes as the name of one; an exported function of bash has another."""
SCRIPT = str(globals().get("TEXT", ""))
"""The text of this program, as `calls` sends it."""


def start(place: Place, request: dict[str, Any]) -> None:
    """Start a pod: its supervisor, which starts Ray."""
    place.make()
    with place.locked():
        records = place.pods()
        if living := [record["pod"]["name"] for record in records if lives(record)]:
            raise UsageError(f"A host has one Ray node, and {living[0]} runs.")
        for record in records:
            end(functools.partial(place.processes, record))
            remove_pod(place, record, files=time.time() - ended_s(record) > FAILED_SHOWN_S)
        write_token(place)
        script = place.root / "agent.py"
        script.write_text(SCRIPT)
        pod = request["pod"]["name"]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("RAY_")
        }
        argv = [sys.executable, str(script), "supervise", json.dumps({"pod": pod})]
        environment |= {CLUSTER_VARIABLE: request["cluster"], POD_VARIABLE: ""}
        pid = (as_unit if request["unit"] else as_session)(place, pod, argv, environment)
        place.directory(pod).mkdir(mode=0o700)
        # Only now: a pod without a supervisor is listed as one whose supervisor was killed. The
        # supervisor waits for the lock.
        process = identify(pid)
        place.write(f"{pod}.json", request | {"supervisor": process})
    put({})


def as_session(place: Place, pod: str, argv: list[str], environment: dict[str, str]) -> int:
    """Start the supervisor in a session of its own; returns its PID."""
    with place.file(pod, "log").open("ab") as log:
        return subprocess.Popen(
            argv,
            cwd=place.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ).pid


def as_unit(place: Place, pod: str, argv: list[str], environment: dict[str, str]) -> int:
    """Start the supervisor as a transient unit of the user's systemd; returns its PID.

    A login session ends with its last connection, and logind may end its processes then
    (KillUserProcesses in logind.conf(5)). What a killed supervisor leaves behind ends with the
    unit. The manager runs without a session only for a user who lingers (loginctl(1)).
    """
    if problem := without_units():
        raise UsageError(f"No unit can be started on {socket.gethostname()}.", problem, LINGER)
    unit, log = f"cockpit-{pod}.service", place.file(pod, "log")
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    own = environment | {"XDG_RUNTIME_DIR": runtime}
    properties = [f"WorkingDirectory={place.root}", f"StandardOutput=append:{log}"]
    properties += [f"StandardError=append:{log}", "TasksMax=infinity"]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    properties.append(f"LimitNOFILE={'infinity' if hard == resource.RLIM_INFINITY else hard}")
    command = ["systemd-run", "--user", "--quiet", "--collect", f"--unit={unit}"]
    command += [f"--property={one}" for one in properties]
    # By name alone: values are read from this process, and are in no command line.
    command += [f"--setenv={name}" for name in environment if VARIABLE.fullmatch(name)]
    called([*command, "--", *argv], own)
    shown = called(["systemctl", "--user", "show", "--property=MainPID", "--value", unit], own)
    return int(shown)


def called(argv: list[str], environment: dict[str, str]) -> str:
    """The output of a program of systemd. Raises CockpitError if it fails."""
    try:
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=SYSTEMD_S
        )
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        if done.returncode == 0:
            return done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    raise CockpitError(
        f"{argv[0]} failed on {socket.gethostname()}.",
        why,
        'Remove supervisor = "systemd" from the file of the hosts if the host has no systemd.',
    )


def supervise(place: Place, request: dict[str, Any]) -> None:
    """Start `ray start`, wait for its end, end what it leaves behind, and record why it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pod = request["pod"]
    # systemd-tmpfiles leaves out a directory that is locked: it would remove old files.
    keep = os.open(place.root.parent, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(keep, fcntl.LOCK_SH)
    with place.locked():
        record = read_json(place.file(pod, "json"))
    if record is None:
        return  # deleted at once
    reason = ""
    if record["gcs"] and not gcs_listens(place, pod, *record["gcs"]):
        reason = "deleted before its head listened"
    else:
        reason = run_ray(place, pod, record)
    end(lambda: place.processes(record))
    deleted = place.file(pod, "stop").exists()
    with place.locked():
        record |= {"ended_s": time.time(), "reason": reason, "deleted": deleted}
        place.write(f"{pod}.json", record)
    shutil.rmtree(place.directory(pod), ignore_errors=True)


def gcs_listens(place: Place, pod: str, address: str, port: int) -> bool:
    deadline = time.monotonic() + GCS_WAIT_S
    while time.monotonic() < deadline and not place.file(pod, "stop").exists():
        with contextlib.suppress(OSError), socket.create_connection((address, port), 2):
            return True
        time.sleep(GCS_CHECK_S)
    return False


def run_ray(place: Place, pod: str, record: dict[str, Any]) -> str:
    log_path, stop = place.file(pod, "log"), place.file(pod, "stop")
    directory = place.directory(pod)
    argv = [record["python"], "-m", "ray.scripts.scripts", *record["argv"]]
    argv.append(f"--temp-dir={directory}")
    beside = Path(shutil.which(record["python"]) or sys.executable).parent
    if (
        record["object_store_bytes"]
        and shutil.disk_usage("/dev/shm").free < 2 * record["object_store_bytes"]
    ):
        argv.append(f"--plasma-directory={directory}")
    environment = (
        {"TMPDIR": str(directory)}  # removed with the pod, as what its killed processes leave in it
        | os.environ
        | record["env"]
        | {
            "RAY_AUTH_TOKEN_PATH": str(place.token),
            "PATH": f"{beside}:{os.environ.get('PATH', os.defpath)}",
            POD_VARIABLE: pod,
        }
    )
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            argv,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    with place.locked():
        record["process"] = identify(child.pid)
        record["started_s"] = time.time()
        place.write(f"{pod}.json", record)
    kill_at_s = None
    # Not `wait` with a timeout: it polls 80 times a second (subprocess.Popen._wait). A child that
    # ended before the signal was blocked is found by the first `poll`.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while (code := child.poll()) is None:
        if kill_at_s is None and stop.exists():
            kill_at_s = float(stop.read_text() or 0)
            child.terminate()
        if kill_at_s is not None and time.time() >= kill_at_s:
            end(lambda: place.processes(record))
        signal.sigtimedwait([signal.SIGCHLD], STOP_CHECK_S)
    return how_it_ended(code, log_path)
