"""Checks beyond those of tests/house.py: start-up imports and pinned versions."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import house

ROOT = Path(__file__).parent.parent


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from cockpit.cli.main import main; main(['--help']);"
        "print(sorted({m.split('.')[0] for m in sys.modules} "
        "& {'textual', 'rich', 'httpx', 'asyncio', 'training', 'ray', 'torch', 'msgspec', "
        "'dataclasses'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_short_verb_imports_no_classes_of_records_and_no_second_http_client() -> None:
    program = (
        "import sys; import cockpit.cli.read.snapshot, cockpit.backends.kuberay.one_shot;"
        "import cockpit.sources.http.client as client; client.has_proxy();"
        "print(sorted(sys.modules.keys() & {'training.telemetry.wire', 'urllib.request', 'httpx'}))"
    )
    env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"


def test_classes_of_cockpit_are_structs_unless_repr_hides_a_field() -> None:
    dataclasses = [
        node
        for path in (ROOT / "cockpit").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and "dataclass" in "".join(map(ast.unparse, node.decorator_list))
    ]
    hiding = {node.name for node in dataclasses if "repr=False" in ast.unparse(node)}
    allowed = hiding | {
        node.name for node in dataclasses if hiding & set(map(ast.unparse, node.bases))
    }
    assert {node.name for node in dataclasses} - allowed == set()


def test_types_are_checked_in_one_process_when_the_workers_of_mypy_start_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = (
        "import sys; late = '--num-workers=2' in sys.argv;"
        f"print('{house.NO_WORKER}: No status file found') if late else None; sys.exit(late)"
    )
    monkeypatch.setattr(house, "CHECKS", {"types": ("-c", program, "--num-workers=2")})
    said: list[str] = []
    assert house.failed_check(said.append) == ""
    assert [line.partition(" (")[0] for line in said] == ["types: ok"]
    monkeypatch.setattr(house, "NO_WORKER", "another error")
    assert house.failed_check(said.append) == "types"


def test_every_pin_is_exact_and_names_no_place() -> None:
    pins = (ROOT / "constraints.txt").read_text().split("\n")
    assert all(pin.count("==") == 1 and "/" not in pin for pin in pins if pin)
