"""A process title that is longer than the arguments eats a part of what /proc shows of the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from cockpit.backends.local.pods.process import CLUSTER_VARIABLE, POD_VARIABLE, PodTrace, find

UID = uuid4().hex[:8]
"""Unique: tests run side by side, and one of them ends all processes of its cluster."""
MARKS = {CLUSTER_VARIABLE: UID, POD_VARIABLE: "p1"}
OVERWRITE = """
import ctypes, sys, time
stat = open("/proc/self/stat").read()
start = int(stat[stat.rindex(")") + 2:].split()[47])  # env_start, see proc(5)
ctypes.memset(start, 0, int(sys.argv[1]))
ctypes.memmove(start, sys.argv[2].encode(), len(sys.argv[2]))
print("done", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("rest", ["", "/site-packages'])"])
@pytest.mark.parametrize("eaten", [30, 45, 52])
def test_a_process_is_found_by_any_part_of_its_environment(
    eaten: int, rest: str, tmp_path: Path
) -> None:
    """As for Ray's agents: the cluster's marker is overwritten, the pod's and others are not."""
    pod = tmp_path / "p1"
    pod.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", OVERWRITE, str(eaten), rest],
        cwd=pod,
        env=MARKS | {"OTHER": "x"},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "done\n"
            seen = Path(f"/proc/{child.pid}/environ").read_bytes()
            assert seen.startswith(rest.encode() + b"\0")
            assert b"OTHER=x" in seen
            (found,) = find(UID, (PodTrace("p1", str(pod), 0),), str(tmp_path))
            assert (found.id.pid, found.pod) == (child.pid, "p1")
        finally:
            child.kill()
