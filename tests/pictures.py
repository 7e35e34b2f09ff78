"""Write docs/overview.svg, taken from a real run that was killed: `python -m tests.pictures`.

Takes about three minutes: a local cluster, the job `checkpointed`, `cockpit` on a pseudo-terminal,
a kill, its recovery, and the key `w`, which saves the screen.
"""

from __future__ import annotations

import shutil
import time
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.cluster import two_workers
from tests.bench.process import COCKPIT, run
from tests.bench.terminal import Terminal

DOCS = Path(__file__).parents[1] / "docs"
SIZE = {"COLUMNS": "160", "LINES": "44"}
START_TIMEOUT_S = 180.0
BEFORE_KILL_S = 50.0
RECOVERY_TIMEOUT_S = 120.0
AFTER_RECOVERY_S = 25.0
SAVE_TIMEOUT_S = 10.0


def overview(target: Path) -> None:
    """Save the Overview of a run that has recovered from a kill as `target`."""
    with TemporaryDirectory() as directory, two_workers(), chdir(directory):
        results = f"storage_path={directory}/results"
        run([COCKPIT, "launch", "checkpointed", "--workers", "2", "--set", results])
        with Terminal([COCKPIT, "--local"], SIZE) as terminal:
            terminal.wait_for("samples/s", START_TIMEOUT_S)
            terminal.bytes_in(BEFORE_KILL_S)
            terminal.type(":")
            terminal.bytes_in(1.0)
            terminal.type("kill 1\r")
            terminal.wait_for("No (n)")
            terminal.type("y")
            terminal.wait_for("recovered in", RECOVERY_TIMEOUT_S)
            terminal.bytes_in(AFTER_RECOVERY_S)
            terminal.type("w")
            deadline = time.monotonic() + SAVE_TIMEOUT_S
            while not (pictures := sorted(Path(directory).glob("cockpit-*.svg"))):
                if time.monotonic() > deadline:
                    raise TimeoutError("the screen saved no picture")
                terminal.bytes_in(0.2)
        shutil.copy(pictures[-1], target)


if __name__ == "__main__":
    overview(DOCS / "overview.svg")
