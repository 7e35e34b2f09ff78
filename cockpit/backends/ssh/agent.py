"""What runs on a host: it starts, watches and ends the Ray node there.

It is sent as text with each call, after the modules that it imports (`calls`), and needs
Python 3.9 or newer and its standard library. Nothing is installed.

    python -c TEXT VERB REQUEST

REQUEST is JSON; what is secret comes on standard input. The answer is JSON lines. A call ends when
its input does, which is when the connection ends: only a supervisor outlives it.

`/tmp/cockpit-UID/h-KEY/` (0700) has everything, KEY being a hash of the cluster's and the host's
name; a Unix socket's path is short, so it is under /tmp:

    agent.py        this text, for the supervisor
    cluster.json    on the head: what is wanted
    operator.lock   on the head: held while an operator is connected
    token           Ray's authentication token (0600)
    POD.json        the pod as it was requested, and how it ended
    POD.stop        when the pod is deleted: when its grace period ends
    POD.log         the output of its `ray start`
    XXXXX/          its directory: Ray's --temp-dir
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import platform
import random
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from cockpit.backends.local.pods.pod_logs import how_it_ended, last_line, paths, read
from cockpit.backends.local.pods.process import (
    CLUSTER_VARIABLE,
    POD_VARIABLE,
    Found,
    PodTrace,
    ProcessId,
    end,
    environment_of,
    find,
    identify,
    is_alive,
    kill,
)
from cockpit.model.error import CockpitError, ReplacedError, UsageError

STATUS_S = 0.25
"""How often the files and processes are read; without a change, nothing is sent."""
HEARTBEAT_S = 5.0
FACTS_S = 30.0
FAILED_SHOWN_S = 15.0
"""How long an ended pod remains in the list, so that its end is visible."""
SUPERVISE_S = 0.1
GCS_WAIT_S = 600.0
LEASE_S = 30.0
"""Without it, a connection that the network dropped would hold the lock for hours."""
LOCK_TRIES = 5
REFUSED = 120
"""The exit code of a call that was refused; the reason is the last line of its output."""
SLOW_START_S = 20.0
NVIDIA_SMI_S = 10.0
FULL_DISK = 0.95
"""Ray starts no more tasks on a node whose disk is fuller (RAY_local_fs_capacity_threshold)."""
SCRIPT = str(globals().get("TEXT", ""))
"""The text of this program, as `calls` sends it."""


class Place:
    """The files of one cluster on this host."""

    def __init__(self, key: str) -> None:
        self.root = Path("/tmp") / f"cockpit-{os.getuid()}" / f"h-{key}"

    def make(self) -> None:
        """Make it, after checking that it is ours alone: anyone may make names in /tmp."""
        for directory in (self.root.parent, self.root):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            found = directory.lstat()
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if not mine or found.st_mode & 0o077:
                raise CockpitError(
                    f"{directory} on {socket.gethostname()} is not a directory of yours alone.",
                    f"It belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}.",
                    "Have it removed; cockpit makes it again.",
                )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One change at a time."""
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    @property
    def cluster(self) -> dict[str, Any] | None:
        return read_json(self.root / "cluster.json")

    @property
    def token(self) -> Path:
        return self.root / "token"

    def pods(self) -> list[dict[str, Any]]:
        """The records of all pods, the oldest first."""
        found = [read_json(path) for path in self.root.glob("*.json") if path.stem != "cluster"]
        listed = [record for record in found if record is not None]
        return sorted(listed, key=lambda record: float(record["pod"]["created_s"]))

    def pod(self, name: str, uid: str = "") -> dict[str, Any]:
        """Raises UsageError if there is none that lives, ReplacedError for one of another UID."""
        listed = {record["pod"]["name"]: record for record in self.pods()}
        record = listed.get(name)
        if record is None or not lives(record):
            reason = (record or {}).get("reason", "")
            raise UsageError(
                f"There is no running pod {name!r} on its host.",
                f"It has ended: {reason}." if record else "It has ended, or never was there.",
                "cockpit pods lists them.",
            )
        if uid and record["pod"]["uid"] != uid:
            raise ReplacedError("Pod", name)
        return record

    def directory(self, pod: str) -> Path:
        return self.root / pod.rpartition("-")[2]

    def file(self, pod: str, end: str) -> Path:
        return self.root / f"{pod}.{end}"

    def write(self, name: str, content: dict[str, Any]) -> None:
        """So that a reader sees the old content or the new."""
        part = self.root / f".{name}.{os.getpid()}"
        part.write_text(json.dumps(content))
        part.replace(self.root / name)

    def trace(self, record: dict[str, Any]) -> PodTrace:
        name, process = record["pod"]["name"], record.get("process")
        session = process[0] if process and is_alive(ProcessId(*process)) else 0
        return PodTrace(name, str(self.directory(name)), session)

    def processes(self, record: dict[str, Any]) -> list[Found]:
        """Those of the pod, without its supervisor."""
        name = record["pod"]["name"]
        trace = self.trace(record)
        return [one for one in find(record["cluster"], [trace], trace.directory) if one.pod == name]


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) else None


def lives(record: dict[str, Any]) -> bool:
    """Until its supervisor has recorded its end; one that was killed ends its pod too."""
    process = record.get("supervisor")
    return record.get("ended_s") is None and process is not None and is_alive(ProcessId(*process))


def put(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def input_ended() -> bool:
    """Whether the connection has ended: then its input has."""
    ready, _, _ = select.select([0], [], [], 0)
    return bool(ready) and not os.read(0, 4096)


def secret() -> str:
    return sys.stdin.readline().strip()


# The verbs.


def facts(place: Place, request: dict[str, Any]) -> None:
    """What `up` checks before it starts anything."""
    answer = host_facts() | {"python": platform.python_version(), "ray": ray_version()}
    answer["at_s"] = time.time()
    answer["pods"] = [record["pod"]["name"] for record in place.pods() if lives(record)]
    cluster = place.cluster
    answer["cluster"] = cluster["uid"] if cluster else ""
    others = [Place(path.name[2:]) for path in place.root.parent.glob("h-*") if path != place.root]
    answer["others"] = [
        record["pod"]["name"]
        for other in others
        for record in other.pods()
        if lives(record) and record["pod"]["ip"] == request["address"]
    ]
    try:
        with socket.socket(socket.AF_INET6 if ":" in request["address"] else socket.AF_INET) as one:
            one.bind((request["address"], 0))
        answer["address"] = ""
    except OSError as error:
        answer["address"] = error.strerror or str(error)
    put(answer)


def ray_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return ""


def init(place: Place, request: dict[str, Any]) -> None:
    """Make the cluster on its head's host: its record, with free ports, and its token."""
    place.make()
    with place.locked():
        if (there := place.cluster) is not None:
            raise UsageError(f"Cluster {there['name']} is already up.")
        write_token(place)
        with contextlib.ExitStack() as stack:
            ports = [bound(stack.enter_context(socket.socket())) for _ in range(3)]
        place.write("cluster.json", request["cluster"] | {"ports": ports})


def bound(one: socket.socket) -> int:
    """Bind it to a free port below those that outgoing connections use, and return that."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError):
            one.bind(("", port))
            return port


def write_token(place: Place) -> None:
    fd = os.open(place.token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(secret())


def token(place: Place, request: dict[str, Any]) -> None:
    put({"token": place.token.read_text()})


def change(place: Place, request: dict[str, Any]) -> None:
    """Replace the cluster's record, if it was not changed since it was read."""
    with place.locked():
        there = place.cluster
        if there is None or there["uid"] != request["cluster"]["uid"]:
            raise ReplacedError("Cluster", request["cluster"]["name"])
        if there["revision"] != request["revision"]:
            put({"conflict": True})
            return
        place.write("cluster.json", request["cluster"])
    put({})


def start(place: Place, request: dict[str, Any]) -> None:
    """Start a pod: its supervisor, which starts Ray."""
    place.make()
    with place.locked():
        records = place.pods()
        if living := [record["pod"]["name"] for record in records if lives(record)]:
            raise UsageError(f"A host has one Ray node, and {living[0]} runs.")
        for record in records:
            end(lambda record=record: place.processes(record))  # type: ignore[misc]
            remove_pod(place, record, files=time.time() - ended_s(record) > FAILED_SHOWN_S)
        write_token(place)
        script = place.root / "agent.py"
        script.write_text(SCRIPT)
        pod = request["pod"]["name"]
        place.directory(pod).mkdir(mode=0o700)
        place.write(f"{pod}.json", request)
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("RAY_")
        }
        with place.file(pod, "log").open("ab") as log:
            supervisor = subprocess.Popen(
                [sys.executable, str(script), "supervise", json.dumps({"pod": pod})],
                cwd=place.root,
                env=environment | {CLUSTER_VARIABLE: request["cluster"], POD_VARIABLE: ""},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        process = identify(supervisor.pid)
        place.write(f"{pod}.json", request | {"supervisor": process})
    put({})


def ended_s(record: dict[str, Any]) -> float:
    return float(record.get("ended_s") or 0.0)


def remove_pod(place: Place, record: dict[str, Any], *, files: bool) -> None:
    name = record["pod"]["name"]
    shutil.rmtree(place.directory(name), ignore_errors=True)
    for suffix in ("json", "log", "stop") if files else ():
        place.file(name, suffix).unlink(missing_ok=True)


def supervise(place: Place, request: dict[str, Any]) -> None:
    """Start `ray start`, wait for its end, end what it leaves behind, and record why it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pod = request["pod"]
    # systemd-tmpfiles leaves out a directory that is locked: it would remove old files of Ray.
    keep = os.open(place.directory(pod), os.O_RDONLY | os.O_DIRECTORY)
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
        time.sleep(SUPERVISE_S)
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
        os.environ
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
    while True:
        try:
            return how_it_ended(child.wait(SUPERVISE_S), log_path)
        except subprocess.TimeoutExpired:
            pass
        if kill_at_s is None and stop.exists():
            kill_at_s = float(stop.read_text() or 0)
            child.terminate()
        if kill_at_s is not None and time.time() >= kill_at_s:
            end(lambda: place.processes(record))


def status(place: Place, request: dict[str, Any]) -> None:
    """Send the state of this host, then each change, until the input ends."""
    sent, sent_s, facts_s, known = "", 0.0, -FACTS_S, {}
    while True:
        now = time.monotonic()
        if now - facts_s >= FACTS_S:
            facts_s, known = now, host_facts()
        state = {
            "host": known,
            "cluster": place.cluster,
            "pods": shown_pods(place),
            "operator": has_operator(place),
        }
        text = json.dumps(state)
        if text != sent or now - sent_s >= HEARTBEAT_S:
            sent, sent_s = text, now
            put(state)
        if not request["follow"]:
            return
        time.sleep(STATUS_S)
        if input_ended():
            return


def shown_pods(place: Place) -> list[dict[str, Any]]:
    shown = []
    for record in place.pods():
        name, over = record["pod"]["name"], not lives(record)
        shown_s = time.time() - ended_s(record)
        deleted = record.get("deleted", False)
        reason = record.get("reason", "")
        if over and record.get("ended_s") is None:
            reason, shown_s = "its supervisor was killed", 0.0
        if not over and time.time() - float(record["pod"]["created_s"]) > SLOW_START_S:
            reason = last_line(place.file(name, "log"))
        shown.append(
            {
                "pod": record["pod"],
                "head_uid": record["head_uid"],
                "over": over,
                "shown": not over or (shown_s < FAILED_SHOWN_S and not deleted),
                "started_s": record.get("started_s"),
                "terminating": not over and place.file(name, "stop").exists(),
                "ended_s": record.get("ended_s"),
                "reason": reason,
            }
        )
    return shown


def has_operator(place: Place) -> bool:
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(place.root / "operator.lock", os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
    return False


def host_facts() -> dict[str, Any]:
    disk = shutil.disk_usage("/tmp")
    names, trouble = gpus()
    problems = [trouble] if trouble else []
    if disk.used > FULL_DISK * disk.total:
        problems.append(f"disk of /tmp is {100 * disk.used / disk.total:.0f} % full")
    return {
        "cpus": os.cpu_count() or 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": names,
        "problems": problems,
        "kernel": platform.release(),
    }


def gpus() -> tuple[list[str], str]:
    """Their names as nvidia-smi lists them, and what it complains about."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], ""
    argv = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=NVIDIA_SMI_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi: {error}"
    lines = done.stdout.splitlines()
    return (lines, "") if done.returncode == 0 else ([], "nvidia-smi: " + " ".join(lines[:1]))


def delete(place: Place, request: dict[str, Any]) -> None:
    """SIGTERM and the grace period, or with 0 SIGKILL of everything in the pod, at once."""
    with place.locked():
        record = place.pod(request["pod"], request["uid"])
        if request["grace_s"] > 0:
            stop = place.file(request["pod"], "stop")
            if not stop.exists():
                stop.write_text(str(time.time() + request["grace_s"]))
    if request["grace_s"] <= 0:
        if "process" not in record:
            place.file(request["pod"], "stop").write_text("0")
        end(lambda: place.processes(record))
    put({})


def logs(place: Place, request: dict[str, Any]) -> None:
    """The pod's output as plain lines."""
    pod = request["pod"]
    record = read_json(place.file(pod, "json"))
    if record is None:
        place.pod(pod)
    files = paths(place.file(pod, "log"), place.directory(pod))

    def is_there() -> bool:
        return lives(read_json(place.file(pod, "json")) or {}) and not input_ended()

    async def send() -> None:
        async for line in read(
            files, follow=request["follow"], lines=request["lines"], is_there=is_there
        ):
            print(line, flush=request["follow"])

    asyncio.run(send())


def exec_(place: Place, request: dict[str, Any]) -> None:
    """Run a command in the pod; it ends with the pod, and with its connection."""
    argv, environment, directory = in_pod(place, request)
    try:
        child = subprocess.Popen(argv, env=environment, cwd=directory, stdin=subprocess.DEVNULL)
    except OSError as error:
        not_run(argv, error)
    code = None
    while code is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = child.wait(SUPERVISE_S)
        if code is None and input_ended():
            child.kill()
    sys.exit(code if code >= 0 else 128 - code)


def attach(place: Place, request: dict[str, Any]) -> None:
    """Become the command, on the streams of this call."""
    argv, environment, directory = in_pod(place, request)
    os.chdir(directory)
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        not_run(argv, error)


def in_pod(place: Place, request: dict[str, Any]) -> tuple[list[str], dict[str, str], Path]:
    record = place.pod(request["pod"], request["uid"])
    environment = environment_of(ProcessId(*record["process"])) if "process" in record else {}
    if not environment:
        raise UsageError(f"Pod {request['pod']} has no processes yet.")
    environment |= request["env"]
    if "TERM" in os.environ:
        environment["TERM"] = os.environ["TERM"]
    return request["argv"], environment, place.directory(request["pod"])


def not_run(argv: list[str], error: OSError) -> NoReturn:
    """With a shell's codes for a command that is not there, or cannot be run."""
    print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def lead(place: Place, request: dict[str, Any]) -> None:
    """Hold the operator's lock until the input ends, or sends nothing for LEASE_S."""
    fd = os.open(place.root / "operator.lock", os.O_RDWR | os.O_CREAT, 0o600)
    for left in reversed(range(LOCK_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:  # also while `has_operator` holds it, for an instant
            if not left:
                raise UsageError("Another operator keeps this cluster.") from None
            time.sleep(SUPERVISE_S)
    os.ftruncate(fd, 0)
    os.write(fd, str(os.getpid()).encode())
    put({})
    while select.select([0], [], [], LEASE_S)[0] and os.read(0, 4096):
        pass


def retire(place: Place, request: dict[str, Any]) -> None:
    """Remove the cluster's record, and wait until its operator has stopped, or end it."""
    (place.root / "cluster.json").unlink(missing_ok=True)
    deadline = time.monotonic() + request["wait_s"]
    while has_operator(place) and time.monotonic() < deadline:
        time.sleep(SUPERVISE_S)
    if has_operator(place) and (pid := (place.root / "operator.lock").read_text()):
        process = identify(int(pid))  # its connection: without it, it can change nothing
        if process is not None:
            kill(process, signal.SIGKILL)
    put({})


def remove(place: Place, request: dict[str, Any]) -> None:
    """End every process of the cluster on this host, and remove its files."""
    root = str(place.root)
    records = place.pods() if place.root.is_dir() else []
    uids = {record["cluster"] for record in records} | {request["cluster"]} - {""}
    traces = [place.trace(record) for record in records]

    def left() -> list[Found]:
        return [one for uid in uids for one in find(uid, traces, root)]

    ended = end(left)
    for _ in range(50):  # a process between fork and exec has no marker yet, and may write
        shutil.rmtree(place.root, ignore_errors=True)
        if not place.root.exists():
            break
        ended += end(left)
        time.sleep(SUPERVISE_S)
    with contextlib.suppress(OSError):
        place.root.parent.rmdir()  # another cluster may be in it
    put({"ended": ended, "left": len(left()), "files": place.root.exists()})


VERBS = {
    "facts": facts,
    "init": init,
    "token": token,
    "change": change,
    "start": start,
    "supervise": supervise,
    "status": status,
    "delete": delete,
    "logs": logs,
    "exec": exec_,
    "attach": attach,
    "lead": lead,
    "retire": retire,
    "remove": remove,
}


def main(argv: list[str]) -> int:
    os.umask(0o077)
    verb, request = argv[0], json.loads(argv[1])
    place = Place(request["key"]) if "key" in request else Place(Path.cwd().name[2:])
    try:
        VERBS[verb](place, request)
    except ReplacedError as error:
        put({"error": {"replaced": [error.kind, error.name]}})
    except CockpitError as error:
        usage = isinstance(error, UsageError)
        fields = {"what": error.what, "why": error.why, "todo": error.todo, "usage": usage}
        put({"error": fields})
    except BrokenPipeError:
        os._exit(1)  # the connection has ended
    except OSError as error:
        what = f"The agent on {socket.gethostname()} failed ({verb})."
        put({"error": {"what": what, "why": str(error), "todo": "", "usage": False}})
    else:
        return 0
    return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
