"""Whether the process that wrote a record still runs."""

from __future__ import annotations

import subprocess
import sys

from msgspec.structs import replace

from cockpit.config.process_identity import ProcessId, ProcessState

OWN = ProcessId.own()


def test_own_process_runs() -> None:
    assert OWN.life is ProcessState.RUNS
    assert OWN.boot
    assert OWN.born
    assert OWN.namespace.startswith("pid:")


def test_process_that_has_ended_is_reported_from_another_with_its_number() -> None:
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    assert replace(OWN, pid=int(child.stdout), born="").life is ProcessState.ENDED
    assert replace(OWN, born="1").life is ProcessState.ENDED


def test_process_of_another_node_or_container_is_unknown() -> None:
    assert replace(OWN, host="login-2", boot="another kernel").life is ProcessState.UNKNOWN
    assert replace(OWN, namespace="pid:[1]").life is ProcessState.UNKNOWN
    assert replace(OWN, host="", boot="another kernel").life is ProcessState.UNKNOWN


def test_process_of_this_host_before_a_reboot_has_ended() -> None:
    assert replace(OWN, boot="another kernel").life is ProcessState.ENDED
