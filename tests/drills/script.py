"""Running a script of `cockpit/drills/pod_scripts` here, as a pod would."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cockpit.drills.engine import pod_script

TIMEOUT_S = 20.0


def run(
    script: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Ended, with its output; the environment is added to the current one."""
    argv = [sys.executable, *pod_script.argv(script, *arguments)[1:]]
    return subprocess.run(
        argv,
        env=os.environ | dict(environment or {}),
        cwd=cwd,
        user=user,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def eventually(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
