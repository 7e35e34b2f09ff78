"""Whether the process that wrote a record still runs."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
from msgspec.structs import replace

from cockpit.config.process_identity import ProcessId, ProcessState

OWN = ProcessId.own()
SHOW_AND_WAIT = """
import sys, msgspec
from cockpit.config.process_identity import ProcessId
print(msgspec.json.encode(ProcessId.own()).decode(), flush=True)
sys.stdin.read()
"""


def test_own_process_runs() -> None:
    assert OWN.life is ProcessState.RUNS
    assert OWN.boot
    assert OWN.born
    assert OWN.namespace.startswith("pid:")


def test_process_that_has_ended_is_reported_from_another_with_its_number() -> None:
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    assert replace(OWN, pid=int(child.stdout), born="").life is ProcessState.ENDED
    assert replace(OWN, born="1").life is ProcessState.ENDED


def test_process_that_was_killed_has_ended_before_its_parent_waits_for_it() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", SHOW_AND_WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        found = msgspec.json.decode(child.stdout.readline(), type=ProcessId)
        before = found.life
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert (before, found.life) == (ProcessState.RUNS, ProcessState.ENDED)


def test_process_of_another_node_or_container_is_unknown() -> None:
    assert replace(OWN, host="login-2", boot="another kernel").life is ProcessState.UNKNOWN
    assert replace(OWN, namespace="pid:[1]").life is ProcessState.UNKNOWN
    assert replace(OWN, host="", boot="another kernel").life is ProcessState.UNKNOWN


def test_process_of_this_host_before_a_reboot_has_ended() -> None:
    assert replace(OWN, boot="another kernel").life is ProcessState.ENDED
