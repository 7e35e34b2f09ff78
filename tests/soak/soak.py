"""Faults against a run on the test Kubernetes while one screen of cockpit watches it.

`python -m tests.soak.soak --seconds 3600 --log soak.log` or `pytest -m soak`. One screen for all of
the time, which records; drills one after another, at most one a minute, drawn at random from the
catalogue, each a process of its own; and beside them, at fixed parts of the time: the API server
and the dashboard restart, the terminal is cut and attached again, a second screen's terminal is
closed, the clock of cockpit's processes is an hour ahead, the disk of the state directory is full.
In the end nothing may be left of any of it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cockpit.drills.faults import catalog
from cockpit.model.drill import Verdict
from cockpit.model.recovery import FAST
from tests.bench.process import COCKPIT
from tests.cluster.fixtures import RealCluster, real_cluster
from tests.cluster.raycluster import STORAGE, Group
from tests.cluster.testbed import Testbed
from tests.soak.clock import SteppedClock
from tests.soak.disk import SmallDisk
from tests.soak.screen import SHOWN, Screen, closed_terminal_ends_it
from tests.soak.usage import Objects, Sampler, Usage, memory_growth

FAULT_EVERY_S = 60.0
SETTLED_S = 600.0
"""From then on the screen's memory must not grow; of a short soak a third of its time."""
GROWTH = 0.05
WORKERS = 2
SPARES = 1
"""Pods beyond the ranks, as docs/recovery.md advises."""
STEP_S = 3_600.0
SHORT: Mapping[str, str] = {
    "for_s": "10",
    "deadline_s": "10",
    "notice_s": "10",
    "grace_s": "5",
    "mtbf_s": "8",
}
"""Parameters that would take longer than a minute has room for."""
RECOVERY_S = 90.0
DRILL_TIMEOUT_S = 420.0
INTERRUPTED_S = 60.0
START_TIMEOUT_S = 240.0
NO_RUN_S = 180.0
"""Without a run that makes steps for longer than this, something is broken."""
FIRST_RUN_S = 600.0
"""The time for the first run to start, before the faults."""
RESUBMITS = 1_000
USAGE_EVERY_S = 300.0
MOST_DESCRIPTORS_MORE = 8
MOST_THREADS_MORE = 4
"""The threads of a pool are started on demand, and kept."""


@dataclass
class Outcome:
    """One drill: the printed verdict, or why there was none."""

    fault: str
    verdict: str
    why: str
    code: int
    took_s: float


@dataclass
class Result:
    seconds: float
    seed: int
    drills: list[Outcome] = field(default_factory=list)
    submissions: int = 0
    disturbances: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    growth: float = 0.0
    memory_bytes: tuple[int, int] = (0, 0)
    descriptors: tuple[int, int] = (0, 0)
    threads: tuple[int, int] = (0, 0)

    def verdicts(self) -> Counter[str]:
        return Counter(drill.verdict for drill in self.drills)


class Soak:
    """Run it in the thread that may end the test cluster: both end with it."""

    def __init__(
        self,
        cluster: RealCluster,
        folder: Path,
        disk: SmallDisk,
        seconds: float,
        seed: int,
        log: Callable[[str], None],
        only: tuple[str, ...] = (),
    ) -> None:
        self.cluster, self.disk, self.seconds = cluster, disk, seconds
        self.result = Result(seconds, seed)
        self._chance, self._log, self._folder = random.Random(seed), log, folder
        clock = folder / "clock"
        clock.mkdir()
        self.clock = SteppedClock(clock)
        ref = cluster.ref
        self.where = ("--context", ref.context, "-n", ref.namespace, "--cluster", ref.name)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("COCKPIT")},
            **self.clock.environment,
            "KUBECONFIG": str(cluster.kubeconfig),
            "XDG_STATE_HOME": str(disk.path),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "SOAK": folder.name,
        }
        self._faults = only or catalog.NAMES
        self._next_faults: list[str] = []
        self._began_s = 0.0
        self._over = threading.Event()
        self._full = threading.Event()
        self._launcher: subprocess.Popen[bytes] | None = None
        self._ran_s = 0.0
        self._objects = folder / "objects.json"
        self.screen: Screen | None = None

    # -- the run of the soak

    def run(self) -> Result:
        self._began_s = self._ran_s = time.monotonic()
        self.log(f"{self.seconds:g} s with seed {self.result.seed}")
        self.await_run(FIRST_RUN_S)
        self.screen = Screen(
            self.disk,
            self._folder / "tmux",
            (*self.where, "--debug"),
            {**self.environment, "SOAK_OBJECTS": str(self._objects)},
        )
        self.screen.wait_for(SHOWN)
        self.screen.attach()
        sampler = Sampler(self.screen.pid)
        # The time for faults begins when the screen is there.
        self._began_s = time.monotonic()
        disturber = threading.Thread(target=self._disturb, name="soak-disturb", daemon=True)
        disturber.start()
        try:
            logged_s, settled = 0.0, None
            settled_s = self._began_s + min(SETTLED_S, self.seconds / 3)
            while self.left_s() > 0 and not sampler.ended:
                if sampler.samples and time.monotonic() - logged_s >= USAGE_EVERY_S:
                    logged_s = time.monotonic()
                    self.log(f"the screen has {memory(sampler.samples[-1])}")
                if settled is None and time.monotonic() >= settled_s:
                    settled = Objects.of(self.screen.pid, self._objects)
                # A drill that takes longer than a minute makes the next ones begin late.
                next_s = self._began_s + (len(self.result.drills) + 1) * FAULT_EVERY_S
                if self.has_recovered() or self.await_run():
                    self.drill()
                while time.monotonic() < next_s and self.left_s() > 0:
                    self.screen.read()
                    time.sleep(0.2)
        finally:
            self._over.set()
            disturber.join(120.0)
        self.log("the time is over")
        if disturber.is_alive():
            self.problem("a disturbance did not end")
        self.await_run()
        self.settle()
        self.end_launch()
        time.sleep(15.0)
        sampler.stop()
        if settled is not None and not sampler.ended:
            now = Objects.of(self.screen.pid, self._objects)
            self.log(f"the screen's Python objects: {now.grown_since(settled)}")
        self._judge_usage(sampler)
        self._judge_drills()
        self._judge_remains()
        if not self.screen.close():
            self.problem("the screen did not end with its key q")
        return self.result

    def left_s(self) -> float:
        return self._began_s + self.seconds - time.monotonic()

    def log(self, line: str) -> None:
        at_s = time.monotonic() - self._began_s
        self._log(f"{time.strftime('%H:%M:%S')} {at_s:7.1f} {line}")

    def problem(self, line: str) -> None:
        self.result.problems.append(line)
        self.log(f"PROBLEM: {line}")

    # -- cockpit's verbs

    def cockpit(self, *argv: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """A verb, to its end; what does not end in time is interrupted, as a user would do it."""
        process = subprocess.Popen(
            self.disk.enter(COCKPIT, *argv, *self.where),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for ending, wait_s in (
            (signal.SIGINT, timeout_s),
            (signal.SIGKILL, INTERRUPTED_S),
            (signal.SIGKILL, INTERRUPTED_S),
        ):
            try:
                out, errors = process.communicate(timeout=wait_s)
            except subprocess.TimeoutExpired:
                self.problem(f"cockpit {' '.join(argv[:3])} did not end in {wait_s:g} s")
                process.send_signal(ending)
            else:
                return subprocess.CompletedProcess(argv, process.returncode, out, errors)
        raise RuntimeError(f"cockpit {argv[0]} cannot be ended")

    def asked(self, *argv: str) -> Any:
        """The decoded response of a verb that reads; None without one."""
        done = self.cockpit(*argv, "-o", "json")
        if is_defect(done.stderr):
            self.problem(f"cockpit {argv[0]} hit a defect: {done.stderr[-600:]}")
        try:
            return json.loads(done.stdout)
        except ValueError:
            return None

    def has_recovered(self) -> bool:
        """Whether the last drill saw a run that makes steps at its end."""
        return bool(self.result.drills) and self.result.drills[-1].verdict == Verdict.PASSED.value

    def await_run(self, timeout_s: float = NO_RUN_S) -> bool:
        """Wait for a run that makes steps; launch one if no launch continues. False: timeout."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            status = self.asked("status") or {}
            run = status.get("run") or {}
            if run.get("state") == "RUNNING" and run.get("step"):
                self._ran_s = time.monotonic()
                return True
            if self._launcher is None or self._launcher.poll() is not None:
                self.launch()
            time.sleep(2.0)
        self.problem(
            f"no run has made steps for {time.monotonic() - self._ran_s:.0f} s: "
            f"{described(status)}; the launch: {_last_line(self._launch_log().read_text())}"
        )
        return False

    def launch(self) -> None:
        """In the background: it submits the job again whenever a drill ends the job's head."""
        argv = (
            *("launch", "checkpointed", "--workers", str(WORKERS), "--yes"),
            *("--resubmit", str(RESUBMITS), "--set", "epochs=100000"),
            *("--set", f"max_failures={RESUBMITS}", "--set", f"storage_path={STORAGE}/runs"),
        )
        if self._launcher is not None:
            self.log(f"launch ended: {_last_line(self._launch_log().read_text())}")
        with self._launch_log().open("ab") as out:
            self._launcher = subprocess.Popen(
                self.disk.enter(COCKPIT, *argv, *self.where),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def end_launch(self) -> None:
        """Interrupt it, as a user would; the job continues."""
        text = self._launch_log().read_text()
        self.result.submissions = sum(
            line.startswith("checkpointed-") or " continues as " in line
            for line in text.splitlines()
        )
        self.log(f"the launch: {text.strip()}")
        if is_defect(text):
            self.problem("cockpit launch hit a defect")
        if self._launcher is not None:
            self._launcher.send_signal(signal.SIGINT)
            try:
                self._launcher.wait(INTERRUPTED_S)
            except subprocess.TimeoutExpired:
                self.problem(f"cockpit launch did not end in {INTERRUPTED_S:g} s")
                self._launcher.kill()
                self._launcher.wait()

    def end(self) -> None:
        """End what still runs, after an error too."""
        if self._launcher is not None and self._launcher.poll() is None:
            self._launcher.kill()
            self._launcher.wait()
        if self.screen is not None:
            self.screen.close()

    def _launch_log(self) -> Path:
        return self._folder / "launch.log"

    def drill(self, fault: str = "") -> None:
        if not fault:
            if not self._next_faults:  # each once before any again
                self._next_faults = list(self._faults)
                self._chance.shuffle(self._next_faults)
            fault = self._next_faults.pop()
        known = {parameter.name for parameter in catalog.fault(fault).parameters}
        values = [f"{name}={value}" for name, value in SHORT.items() if name in known]
        seed = self._chance.randrange(1 << 16)
        argv = ["drill", "run", fault, "--yes", "--allow-head", "--seed", str(seed)]
        argv += [part for value in values for part in ("--set", value)]
        argv += ["--timeout", f"{RECOVERY_S:g}", "-o", "json"]
        began_s = time.monotonic()
        done = self.cockpit(*argv, timeout_s=DRILL_TIMEOUT_S)
        took_s = time.monotonic() - began_s
        if is_defect(done.stderr):
            self.problem(f"the drill {fault} hit a defect: {done.stderr[-800:]}")
        try:
            data = json.loads(done.stdout)
            outcome = Outcome(fault, data["verdict"], data["why"], done.returncode, took_s)
            stages = stages_of(data)
        except (ValueError, KeyError, TypeError):
            verdict = "refused" if done.returncode in (1, 3, 4) else ""
            outcome = Outcome(fault, verdict, _last_line(done.stderr), done.returncode, took_s)
            stages = ""
        self.result.drills.append(outcome)
        self.log(
            f"drill {fault} (seed {seed}): {outcome.verdict or 'no verdict'}, "
            f"exit code {outcome.code}, {took_s:.0f} s{stages}: {outcome.why}"
        )
        if self.has_recovered():
            self._ran_s = time.monotonic()

    # -- events beside the drills

    def _disturb(self) -> None:
        plan: list[tuple[float, str, Callable[[], None]]] = [
            (0.08, "cut the terminal", self._cut),
            (0.15, "restart the API server", self._restart_api_server),
            (0.25, "close a second screen's terminal", self._close_terminal),
            (0.35, "step the clock an hour ahead", lambda: self.clock.step(STEP_S)),
            (0.42, "cut the terminal", self._cut),
            (0.48, "step the clock back", lambda: self.clock.step(0.0)),
            (0.55, "restart the dashboard", self._restart_dashboard),
            (0.68, "fill the state directory's disk", self._fill),
            (0.80, "free it", self._free),
            (0.85, "restart the API server", self._restart_api_server),
            (0.92, "cut the terminal", self._cut),
        ]
        for at, name, act in plan:
            wait_s = self._began_s + at * self.seconds - time.monotonic()
            if self._over.wait(max(0.0, wait_s)):
                break
            self.log(name)
            self.result.disturbances.append(name)
            try:
                act()
            except Exception as error:  # noqa: BLE001 - it is reported, and the soak continues
                self.problem(f"{name}: {type(error).__name__}: {error}")
        self.clock.step(0.0)
        self._free()

    def _cut(self) -> None:
        assert self.screen is not None
        self.screen.cut()
        time.sleep(5.0)
        self.screen.attach()

    def _close_terminal(self) -> None:
        if not closed_terminal_ends_it(self.disk, self.where, self.environment):
            self.problem("a screen whose terminal was closed did not end")

    def _restart_api_server(self) -> None:
        plane = self.cluster.testbed.plane
        plane.stop_api_server(signal.SIGKILL)  # on SIGTERM it would wait for its watches to end
        time.sleep(5.0)
        plane.start_api_server()
        plane.wait_until_ready()

    def _restart_dashboard(self) -> None:
        """Its process is killed, which ends the head's container; the kubelet starts it again."""
        head = next(p["metadata"]["name"] for p in self.cluster.pods() if "-head" in _name(p))
        self.in_pod(head, "pkill", "-9", "-f", "dashboard/dashboard.py")

    def _fill(self) -> None:
        self._full.set()
        self.log(f"the disk took {self.disk.fill():,} bytes more")

    def _free(self) -> None:
        self.disk.free()
        self._full.clear()

    # -- what is left in the end

    def settle(self) -> None:
        self.cluster.wait_ready(WORKERS + SPARES, START_TIMEOUT_S)

    def in_pod(self, pod: str, *argv: str) -> str:
        async def run() -> str:
            backend = self.cluster.backend()
            try:
                return (await backend.exec(pod, argv)).stdout
            finally:
                await backend.aclose()

        return asyncio.run(run())

    def _judge_usage(self, sampler: Sampler) -> None:
        samples, result = sampler.samples, self.result
        if sampler.ended:
            self.problem("the screen ended before its time")
            return
        settled_s = min(SETTLED_S, self.seconds / 3)
        result.growth = memory_growth(samples, settled_s)
        settled = [of for of in samples if settled_s <= of.at_s < settled_s + 60.0]
        last = samples[-1]
        result.memory_bytes = settled[0].memory_bytes, last.memory_bytes
        result.descriptors = max(of.descriptors for of in settled), last.descriptors
        result.threads = max(of.threads for of in settled), last.threads
        self.log(
            f"the screen: {memory(settled[0])} → {memory(last)} ({result.growth:+.1%} from "
            f"{settled_s:g} s on), descriptors {result.descriptors}, threads {result.threads}"
        )
        if result.growth >= GROWTH:
            self.problem(f"the screen's memory grew by {result.growth:.1%}")
        if last.descriptors > result.descriptors[0] + MOST_DESCRIPTORS_MORE:
            self.problem(f"the screen's descriptors grew: {result.descriptors}")
        if last.threads > result.threads[0] + MOST_THREADS_MORE:
            self.problem(f"the screen's threads grew: {result.threads}")
        if last.children:
            self.problem(f"the screen has {last.children} child processes")

    def _judge_drills(self) -> None:
        known = {verdict.value for verdict in Verdict}
        for drill in self.result.drills:
            if drill.verdict not in known:
                self.problem(f"{drill.fault} has no verdict: exit code {drill.code}, {drill.why}")
        left = sorted(path.name for path in self._journal().glob("*"))
        if left:
            self.problem(f"not undone: {', '.join(left)}")

    def _journal(self) -> Path:
        return self.disk.seen / "cockpit" / "drills" / "journal"

    def _judge_remains(self) -> None:
        api, namespace = self.cluster.testbed.plane, self.cluster.ref.namespace
        policies = api.ask(
            "GET", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
        )["items"]
        leases = api.ask("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
        held = [
            item["metadata"]["name"]
            for item in leases["items"]
            if item["spec"].get("holderIdentity")
        ]
        nodes = api.ask("GET", "/api/v1/nodes")["items"]
        cordoned = [_name(node) for node in nodes if node["spec"].get("unschedulable")]
        for what, names in (
            ("network policies", [_name(policy) for policy in policies]),
            ("leases", held),
            ("cordoned nodes", cordoned),
        ):
            if names:
                self.problem(f"{what} are left: {', '.join(names)}")
        for pod in self.cluster.pods():
            left = self.in_pod(_name(pod), "python", "-c", REMAINS).strip()
            if left:
                self.problem(f"in the pod {_name(pod)} is left: {left}")

    def processes(self) -> list[str]:
        """Those of this soak that still run, besides its own."""
        marker, found = f"SOAK={self._folder.name}".encode(), []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if marker in (folder / "environ").read_bytes().split(b"\0"):
                        argv = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                        found.append(f"{folder.name} {argv.decode(errors='replace')[:100]}")
                except OSError:
                    continue
        return found


def memory(usage: Usage) -> str:
    resident_mb, anonymous_mb = usage.memory_bytes / 1e6, usage.anonymous_bytes / 1e6
    return f"{resident_mb:.1f} MB resident, {anonymous_mb:.1f} of it in no file"


def is_defect(errors: str) -> bool:
    """Whether a verb ended with an exception: without --debug it prints one line."""
    return "internal error" in errors or "Traceback" in errors


def described(status: Mapping[str, Any]) -> str:
    """The states of cluster, run, jobs and sources, on a line."""
    run, cluster = status.get("run") or {}, status.get("cluster") or {}
    health = f"{cluster.get('health', '?')} {cluster.get('message', '')}".strip()
    jobs = [f"{job.get('name')} {job.get('status')}" for job in status.get("jobs", ())]
    sources = [
        f"{of['name']} {'ok' if of.get('ok') else 'absent' if of.get('absent') else of['error']}"
        for of in status.get("sources", ())
    ]
    return (
        f"cluster {health}, "
        f"run {run.get('state', 'none')} at step {run.get('step')}, "
        f"jobs {', '.join(jobs) or 'none'}, sources {', '.join(sources) or 'none'}"
    )


def stages_of(record: Mapping[str, Any]) -> str:
    """How long each stage of a drill took, such as `, recovering 31 s`."""
    stages = [*record["stages"], {"at_s": record["ended_s"]}]
    return "".join(
        f", {one['stage']} {after['at_s'] - one['at_s']:.0f} s"
        for one, after in itertools.pairwise(stages)
        if after["at_s"] - one["at_s"] >= 0.5
    )


REMAINS = f'''
import glob, os, subprocess, tempfile
for argv in (["/usr/sbin/nft", "list", "tables"], ["/usr/sbin/tc", "qdisc", "show"]):
    for line in subprocess.run(argv, capture_output=True, text=True).stdout.splitlines():
        if "cockpit" in line or any(k in line for k in ("netem", "tbf", "clsact", "ingress")):
            print(line)
for path in glob.glob("/proc/[0-9]*"):
    try:
        state = open(path + "/stat").read().rpartition(")")[2].split()[0]
        argv = open(path + "/cmdline").read().replace("\\0", " ")
    except OSError:
        continue
    if path.endswith("/" + str(os.getpid())):
        continue
    if state == "T":
        print("stopped:", argv[:80])
    if "cockpit-drill" in argv or "cockpit_drill" in argv:
        print("running:", argv[:80])
for folder in (tempfile.gettempdir(), "/dev"):
    for name in os.listdir(folder):
        if "cockpit" in name:
            print(os.path.join(folder, name))
for folder, _, names in os.walk("{STORAGE}/runs"):
    for name in names:
        if "cockpit" in name and not name.endswith(".json"):
            print(os.path.join(folder, name))
try:
    with tempfile.TemporaryFile(dir="{STORAGE}/runs"):
        pass
except OSError as error:
    print("{STORAGE}/runs:", error)
'''
"""Prints what a drill left in a pod."""


def soak(
    seconds: float, seed: int, log: Callable[[str], None], only: tuple[str, ...] = ()
) -> Result:
    """Start everything, run it, end everything; `problems` of the result must be empty."""
    mounts, before = _mounts(), _own_descriptors()
    with tempfile.TemporaryDirectory(prefix="cockpit-soak-") as name:
        folder = Path(name)
        testbed = Testbed.up(real=True, operator=True)
        try:
            group = Group(replicas=WORKERS + SPARES, capabilities=("NET_ADMIN", "LINUX_IMMUTABLE"))
            cluster = real_cluster(testbed, group, FAST.pod_env)
            with SmallDisk(folder / "state") as disk:
                made = Soak(cluster, folder, disk, seconds, seed, log, only)
                try:
                    result = made.run()
                finally:
                    made.end()
                if ended := testbed.plane.space.ended():
                    made.problem(f"a part of the test cluster ended: {ended}")
                if left := made.processes():
                    made.problem(f"processes are left: {left}")
        finally:
            testbed.down()
    if left := sorted(_mounts() - mounts):
        made.problem(f"mounts are left: {left}")
    if (now := _own_descriptors()) > before:
        made.problem(f"the soak itself has {now} descriptors, {before} before")
    return result


def _name(item: Any) -> str:
    return str(item["metadata"]["name"])


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-300:]


def _mounts() -> set[str]:
    """Those of the soak and its cluster: other programs mount and unmount too."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return {line for line in lines if "/cockpit-" in line or "/netns/" in line}


def _own_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def report(result: Result) -> str:
    """The result, as lines of text."""
    verdicts = ", ".join(f"{count} {name}" for name, count in sorted(result.verdicts().items()))
    return "\n".join(
        [
            f"{result.seconds:g} s, seed {result.seed}: {len(result.drills)} drills ({verdicts}), "
            f"{result.submissions} submissions, {len(result.disturbances)} disturbances.",
            f"The screen: memory {result.memory_bytes[0] / 1e6:.1f} → "
            f"{result.memory_bytes[1] / 1e6:.1f} MB ({result.growth:+.1%}), descriptors "
            f"{result.descriptors[0]} → {result.descriptors[1]}, threads {result.threads[0]} → "
            f"{result.threads[1]}.",
            *(f"PROBLEM: {line}" for line in result.problems),
            "" if result.problems else "Nothing is left.",
        ]
    ).strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--seed", type=int, default=None, help="of the faults (default: by chance)")
    parser.add_argument("--only", default="", help="these faults, with commas between")
    parser.add_argument("--log", type=Path, default=None, help="write the log to this file too")
    args = parser.parse_args()
    seed = random.randrange(1 << 16) if args.seed is None else args.seed
    log = args.log.open("a", buffering=1, encoding="utf-8") if args.log else None

    def write(line: str) -> None:
        print(line, flush=True)
        if log is not None:
            print(line, file=log)

    result = soak(args.seconds, seed, write, tuple(filter(None, args.only.split(","))))
    write(report(result))
    return int(bool(result.problems))


if __name__ == "__main__":
    sys.exit(main())
