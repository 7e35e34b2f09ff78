"""All logs of 1,000 ranks × 1,000 lines: `python -m tests.bench.all_logs [RANKS]`.

A dashboard in another process serves the logs over real sockets; it is the tests' fake, which
answers faster than a Ray head that fetches each log from the agent of its node.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from cockpit.backends.run_log import RunLogSource
from cockpit.model.cluster import DashboardRoute
from cockpit.store.store import Store
from tests.bench.process import COCKPIT, cpu_of
from tests.bench.table import Line, Table, load, say, show
from tests.simulated_backend import ScriptedBackend
from tests.sources.fake_dashboard import FakeDashboard, Fault, node

RANKS, LINES, RANKS_A_NODE = 1_000, 1_000, 8
FIRST_SCREEN_S, MEMORY_MB = 2.0, 300.0
SCREEN_LINES = 50
RUNS = "/api/train/v2/runs/v1"


@dataclass(frozen=True, slots=True)
class Printed:
    first_s: float
    """Until a screen of rows was printed, the start of the process included."""
    first_cpu_s: float
    """Its processor time until then."""
    whole_s: float
    lines: int
    cpu_s: float
    memory_mb: float
    """The most that the process had resident."""


def measure(ranks: int = RANKS) -> Table:
    began = load()
    with serving(ranks) as address:
        say("the first screen …")
        short = printed(address)
        say("the view …")
        view = viewed(address)
        say(f"all {ranks * LINES:,} lines …")
        whole = printed(address, "--lines", str(LINES))
    promised = ranks == RANKS
    return Table(
        f"All logs of {ranks:,} ranks",
        f"`cockpit logs --all` on {ranks:,} logs of {LINES:,} lines each, 100 characters a line, "
        "with those of the driver, the controller and the raylets, served by a local process.",
        [
            line("until the first screen", short.first_s, "s", FIRST_SCREEN_S, promised),
            Line("processor time until then", f"{short.first_cpu_s:.1f} s"),
            Line("until the last line of each log's 50 is printed", f"{short.whole_s:.1f} s"),
            Line("processor time of that, the start of cockpit included", f"{short.cpu_s:.1f} s"),
            line("resident memory of that, maximum", short.memory_mb, "MB", MEMORY_MB, promised),
            line(
                "in the UI: until the rows are in the store",
                view.first_s,
                "s",
                FIRST_SCREEN_S,
                promised,
            ),
            Line("in the UI: processor time until then", f"{view.first_cpu_s:.1f} s"),
            line("in the UI: memory, maximum", view.memory_mb, "MB", MEMORY_MB, promised),
            Line("`--lines 1000`: until the first screen", f"{whole.first_s:.1f} s"),
            Line("`--lines 1000`: until all is printed", f"{whole.whole_s:.1f} s"),
            Line("`--lines 1000`: rows", f"{whole.lines:,}"),
            line("`--lines 1000`: memory, maximum", whole.memory_mb, "MB", MEMORY_MB, promised),
        ],
        began,
    )


def line(what: str, value: float, unit: str, most: float, promised: bool) -> Line:
    shown = f"{value:.1f} {unit}"
    return Line(what, shown, f"≤ {most:g} {unit}", value <= most) if promised else Line(what, shown)


def printed(address: str, *flags: str) -> Printed:
    """Raises CalledProcessError when the command fails."""
    argv = [COCKPIT, "logs", "--all", "--address", address, *flags]
    began = time.perf_counter()
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None
        first_s, first_cpu_s, lines = 0.0, 0.0, 0
        for _ in child.stdout:
            lines += 1
            if lines == SCREEN_LINES:
                first_s, first_cpu_s = time.perf_counter() - began, cpu_of(child.pid)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode or lines < SCREEN_LINES:
        raise subprocess.CalledProcessError(child.returncode, argv)
    whole_s, cpu_s = time.perf_counter() - began, used.ru_utime + used.ru_stime
    return Printed(first_s, first_cpu_s, whole_s, lines, cpu_s, used.ru_maxrss / 1e3 * 1.024)


def viewed(address: str) -> Printed:
    """The source of the UI's view, in a process of its own, until its first rows are in a store."""
    argv = [sys.executable, "-m", "tests.bench.all_logs", "--view", address]
    began = time.perf_counter()
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        lines = int(child.stdout.readline())
        first_s = time.perf_counter() - began
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode or lines < SCREEN_LINES:
        raise subprocess.CalledProcessError(child.returncode, argv)
    cpu_s = used.ru_utime + used.ru_stime
    return Printed(first_s, cpu_s, first_s, lines, cpu_s, used.ru_maxrss / 1e3 * 1.024)


async def view(address: str) -> None:
    async def known() -> tuple[str, Sequence[str]]:
        return "", ()

    source = RunLogSource(ScriptedBackend(route=DashboardRoute(address)), "", known)
    store = Store()
    async with aclosing(source.events()) as events:
        async for event in events:
            store.apply(event)
            if lines := sum(len(log.lines) for log in store.logs.values()):
                print(lines, flush=True)
                return


@contextmanager
def serving(ranks: int) -> Iterator[str]:
    argv = [sys.executable, "-m", "tests.bench.all_logs", "--serve", str(ranks)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(child.stdout.readline())}"
        finally:
            child.terminate()


async def serve(ranks: int) -> None:
    fake = FakeDashboard()
    now_s = time.time()
    nodes = [f"{number:056x}" for number in range(-(-ranks // RANKS_A_NODE))]
    fake.nodes = [node(node_id, head=node_id == nodes[0]) for node_id in nodes]
    fake.add_job("bench")
    fake.jobs[0]["driver_node_id"] = nodes[0]
    for rank in range(ranks):
        fake.write(f"train/{rank}.log", log_of(rank, now_s - LINES))
    for name in ("job-driver-bench.log", "raylet.out", "gcs_server.out", "train/controller.log"):
        fake.write(name, log_of(0, now_s - LINES))
    fake.fail(RUNS, *[Fault(200, state(ranks, nodes, now_s))] * 100)
    async with fake.serve():
        print(fake.port, flush=True)
        await asyncio.Event().wait()


def log_of(rank: int, began_s: float) -> str:
    """A line a second; every tenth is equal on all ranks."""
    lines = []
    for number in range(LINES):
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(began_s + number))
        text = f"epoch {number} begins" if number % 10 == 0 else f"loss {(rank + 1) / (number + 1)}"
        whole = f"{at},{rank % 1000:03} INFO train.py:7 -- [rank{rank}] {text} "
        lines.append(whole.ljust(99, "x"))
    return "\n".join(lines) + "\n"


def state(ranks: int, nodes: list[str], now_s: float) -> str:
    workers = [
        {
            "world_rank": rank,
            "node_id": nodes[rank // RANKS_A_NODE],
            "node_ip": "127.0.0.10",
            "pid": 1_000 + rank,
            "log_file_path": f"/tmp/ray/session_x/logs/train/{rank}.log",
        }
        for rank in range(ranks)
    ]
    began = {"start_time_ns": int(now_s * 1e9), "status": "RUNNING"}
    run = began | {
        "id": "r1",
        "name": "bench",
        "job_id": "01000000",
        "job_details": {"submission_id": "bench"},
        "controller_log_file_path": "/tmp/ray/session_x/logs/train/controller.log",
        "attempts": [began | {"workers": workers}],
    }
    return json.dumps({"train_runs": [run]})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(int(sys.argv[2])))
    elif sys.argv[1:2] == ["--view"]:
        asyncio.run(view(sys.argv[2]))
    else:
        count = int(sys.argv[1]) if len(sys.argv) > 1 else RANKS
        sys.exit(show(lambda: measure(count)))
