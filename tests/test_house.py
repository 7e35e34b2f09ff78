"""The rules of the house: types, lint, and the architecture's boundaries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


LINT_IMPORTS = "from importlinter.cli import lint_imports_command as lint; lint()"


@pytest.mark.parametrize(
    "argv",
    [
        ("-m", "ruff", "check", "."),
        ("-m", "ruff", "format", "--check", "."),
        ("-m", "mypy"),
        ("-c", LINT_IMPORTS, "--no-cache"),
    ],
    ids=["lint", "format", "types", "boundaries"],
)
def test_the_house_is_in_order(argv: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from cockpit.cli.main import main; main(['--help']);"
        "print(sorted({m.split('.')[0] for m in sys.modules} "
        "& {'textual', 'rich', 'httpx', 'asyncio', 'training', 'ray', 'torch'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_pin_is_exact_and_names_no_place() -> None:
    pins = (ROOT / "constraints.txt").read_text().split("\n")
    assert all(pin.count("==") == 1 and "/" not in pin for pin in pins if pin)
