"""A cluster on hosts: `python -m tests.bench.hosts [start] [rest] [recovery] [view]`.

Needs root: hosts are namespaces of this machine, or 64 sshd at addresses of its own. `recovery` is
the case `spare` of `python -m tests.bench.recovery --on hosts`, with fewer drills.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from statistics import median, quantiles

from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.description import Hosts, read
from cockpit.launch import submission
from cockpit.model.event import KubernetesNodesListed
from cockpit.session import builder
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.store.selectors import current_run
from tests.bench import recovery
from tests.bench.many_pods import resident_mb
from tests.bench.process import COCKPIT, cpu_of
from tests.bench.table import Line, Table, load, say, show
from tests.bench.terminal import Terminal
from tests.host_spaces import HostSpace, Network, host_spaces
from tests.local_cluster import separate_state
from tests.ssh_cluster import description, running_hosts
from tests.sshd import children

HOSTS = 3
START_S = 600.0
PROMISED_START_S = 90.0
REST_S = 60.0
SETTLED_S = 75.0
"""At rest is a minute without a job, a change or a key."""
VIEWED_S = 20.0
MANY = 64
KEYS = 200
DRILLS = 3
PARTS = ("start", "rest", "recovery", "view")
_COUNT = re.compile(r"bytes_(?:acked|received):(\d+)")


@contextmanager
def cluster_of(network: Network) -> Iterator[Hosts]:
    """A head that trains too, and the others in group `gpu`; `down` at the end."""
    listed = [host.sshd for host in network.hosts]
    path = Path(description(listed, replicas=len(listed) - 1).path)
    path.write_text(path.read_text().replace("head = true", "head = true\ncpus = 1"))
    hosts = read(str(path))
    try:
        yield hosts
    finally:
        asyncio.run(lifecycle.down(hosts))


def first_step(network: Network, hosts: Hosts) -> dict[str, float]:
    """Seconds from the command `up` until each of what follows, the first step the last."""
    began, began_s = time.monotonic(), time.time()
    asyncio.run(lifecycle.up(hosts, "fast", START_S, say))
    until = {"the hosts are a cluster (`cockpit up`)": time.monotonic() - began}
    settings = {"storage_path": str(network.shared), "epochs": "100000"}
    with builder.session_on(SshBackend(hosts)) as session:
        job = session.call(_launch(hosts, settings))
        until["the job is submitted"] = time.monotonic() - began

        def stepped() -> bool:
            run = current_run(session.store)
            return bool(run and run.attempt and run.attempt.first_step_s)

        if not session.wait(lambda store: stepped(), START_S):
            raise TimeoutError(f"no step of {job}: {session.store.jobs.get(job)}")
        run = current_run(session.store)
        assert run is not None
        assert run.attempt is not None
        assert run.attempt.started_s is not None
        assert run.attempt.first_step_s is not None
        until["its driver has started the run"] = run.started_s - began_s
        until["its ranks have started"] = run.attempt.started_s - began_s
        until["the first step"] = run.attempt.first_step_s - began_s
        session.call(_stop(hosts, job))
    return until


async def _launch(hosts: Hosts, settings: dict[str, str]) -> str:
    backend = SshBackend(hosts)
    try:
        async with Dashboard(backend.dashboard) as dashboard:
            spec = submission.bundled_spec("checkpointed", settings, 2)
            return (await submission.launch(dashboard, spec)).id
    finally:
        await backend.aclose()


async def _stop(hosts: Hosts, job: str) -> None:
    backend = SshBackend(hosts)
    try:
        async with Dashboard(backend.dashboard) as dashboard:
            await dashboard.stop(job)
    finally:
        await backend.aclose()


def cost_s(host: HostSpace) -> float:
    """CPU seconds of what cockpit has on the host: its sshd's sessions, and supervisors of pods."""
    own = [host.sshd.daemon, *children(host.sshd.daemon)]
    for pid in host.processes():
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"supervise" in argv:
            own.append(pid)
    return sum(map(cpu_of, own))


def ssh_bytes(host: HostSpace) -> int:
    """Sent and received by its sshd, on the connections that are open."""
    return sum(map(int, _COUNT.findall(host.run("ss", "-tinH", "sport", "=", ":22"))))


def at_rest(network: Network, hosts: Hosts) -> list[Line]:
    """With the operator and a UI connected."""
    with Terminal([COCKPIT, "--hosts", hosts.path]) as terminal:
        terminal.type("9")
        terminal.bytes_in(SETTLED_S)
        before = [(cost_s(host), ssh_bytes(host)) for host in network.hosts]
        began = time.monotonic()
        terminal.bytes_in(REST_S)
        took_s = time.monotonic() - began
        after = [(cost_s(host), ssh_bytes(host)) for host in network.hosts]
    pairs = list(zip(before, after, strict=True))
    percents = [100 * (end[0] - begin[0]) / took_s for begin, end in pairs]
    rates = [(end[1] - begin[1]) / took_s / 1000 for begin, end in pairs]
    say(f"each host: CPU {percents}, KB/s {rates}")
    what = f"at rest, with a UI and the operator, over {REST_S:g} s:"
    return [
        promise(f"{what} of one core of a host, the most", max(percents), "%", 1.0, 2),
        promise(f"{what} over ssh, the most of a host", max(rates), "KB/s", 2.0, 2),
    ]


def view(count: int = MANY) -> list[Line]:
    """The Nodes view of many hosts, each an sshd with an agent."""
    with running_hosts(count, real=False) as (hosts, _):
        answered = asyncio.run(all_answered_s(hosts))
        with Terminal([COCKPIT, "--hosts", hosts.path]) as terminal:
            terminal.type("9")
            rows = terminal.wait_for("host-1 ") - terminal.began_s
            terminal.bytes_in(VIEWED_S)
            cpu, began = cpu_of(terminal.pid), time.monotonic()
            terminal.bytes_in(VIEWED_S)
            percent = 100 * (cpu_of(terminal.pid) - cpu) / (time.monotonic() - began)
            mebibytes = resident_mb(terminal.pid)
            took = [1000 * terminal.answer_s("jk"[number % 2]) for number in range(KEYS)]
    what = f"{count} hosts:"
    return [
        promise(f"{what} from the command to the first rows of nodes", rows, "s", 1.0, 2),
        promise(f"{what} until all have answered", answered, "s", None, 1),
        promise(f"{what} resident memory", mebibytes, "MB", 150, 0),
        promise(f"{what} at rest, of one core, without its ssh", percent, "%", 5.0, 1),
        promise(f"{what} key to paint, median", median(took), "ms", 10.0, 1),
        promise(f"{what} key to paint, 99 %", quantiles(took, n=100)[98], "ms", 50.0, 1),
    ]


async def all_answered_s(hosts: Hosts) -> float:
    """From the first connection."""
    backend, began = SshBackend(hosts), time.monotonic()
    try:
        async with aclosing(backend.watch()) as events:
            async for event in events:
                if isinstance(event, KubernetesNodesListed) and all(n.ready for n in event.nodes):
                    return time.monotonic() - began
    finally:
        await backend.aclose()
    raise AssertionError("a watch does not end")


def promise(what: str, value: float, unit: str, most: float | None, digits: int) -> Line:
    text = f"{value:.{digits}f} {unit}"
    if most is None:
        return Line(what, text)
    return Line(what, text, f"≤ {most:g} {unit}", value <= most)


def measure(parts: Sequence[str]) -> Table:
    began = load()
    lines: list[Line] = []
    if {"start", "rest"} & {*parts}:
        names = [f"host-{number}" for number in range(HOSTS)]
        with separate_state(), host_spaces(*names) as network, cluster_of(network) as hosts:
            if "start" in parts:
                what = f"from `cockpit up` on {HOSTS} hosts with Ray, and `checkpointed`, until"
                until = first_step(network, hosts)
                *before, (last, step_s) = until.items()
                lines += [promise(f"{what} {name}", s, "s", None, 1) for name, s in before]
                lines.append(promise(f"{what} {last}", step_s, "s", PROMISED_START_S, 1))
            else:
                asyncio.run(lifecycle.up(hosts, "fast", START_S, say))
            if "rest" in parts:
                lines += at_rest(network, hosts)
    if "recovery" in parts:
        rows = recovery.measure_all(["spare"], ["fast"], DRILLS, "hosts", None)
        lines += recovery.tabled(rows, "", began).lines
    if "view" in parts:
        lines += view()
    return Table(
        "Clusters on hosts",
        f"{HOSTS} hosts as network namespaces of this machine, each with its own sshd, and Ray on "
        f"each of them; a head and {recovery.RANKS + 1} more of them for the recovery of a run of "
        f"{recovery.RANKS} ranks, whose pod is killed; then {MANY} sshd with an agent each, and a "
        f"program in place of Ray. `cockpit` on a pseudo-terminal of 200×50 in the Nodes view. The "
        f"hosts share the cores of the machine.",
        lines,
        began,
    )


if __name__ == "__main__":
    assert os.getuid() == 0, "namespaces need root"
    sys.exit(show(lambda: measure(sys.argv[1:] or PARTS)))
