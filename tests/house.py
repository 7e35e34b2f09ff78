"""Lint, format, types and import contracts: `python -m tests.house`.

The quick lane runs them once, before its first test (tests/conftest.py).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHECKS = {
    "lint": ("-m", "ruff", "check", "."),
    "format": ("-m", "ruff", "format", "--check", "."),
    "import contracts": (
        "-c",
        "from importlinter.cli import lint_imports_command as lint; lint()",
        "--no-cache",
    ),
    "types": ("-m", "mypy", "--num-workers=2"),
}
"""The arguments of Python for each; the slowest is last."""


NO_WORKER = "Failed to establish connection with worker"
"""mypy ends with an internal error when its workers take more than 5 s to start."""


def failed_check(report: Callable[[str], None]) -> str:
    """Return the name of the first check that fails, or nothing; report each, with its seconds."""
    for name, argv in CHECKS.items():
        begun = time.monotonic()
        done = _run(argv)
        if done.returncode and NO_WORKER in done.stdout + done.stderr:
            done = _run(tuple(part for part in argv if not part.startswith("--num-workers")))
        report(
            f"{name}: {'failed' if done.returncode else 'ok'} ({time.monotonic() - begun:.0f} s)"
        )
        if done.returncode:
            report(done.stdout + done.stderr)
            return name
    return ""


def _run(argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    sys.exit(bool(failed_check(lambda line: print(line, flush=True))))
