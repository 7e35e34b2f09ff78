"""What the checks of tests/house.py do not cover: start-up imports and pinned versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


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
