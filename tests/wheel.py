"""The wheel of this repository, installed as a user has it."""

from __future__ import annotations

import os
import runpy
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def built(folder: Path) -> Path:
    """Built with the backend that pyproject.toml names, in an environment of its own."""
    build = runpy.run_path(str(ROOT / "manifests/krew/build.py"))
    found: Path = build["wheel"](folder)
    return found


def install(python: str, wheel: Path, place: Path) -> None:
    """Into a new virtual environment, without an extra."""
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin/python"), "-m", "pip", "install", "-q"]
    done = subprocess.run(
        [*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def environment(home: Path, **more: str) -> dict[str, str]:
    """That of a new user: without this environment's Python packages and settings."""
    kept = {
        name: text for name, text in os.environ.items()
        if not name.startswith(("PYTHON", "COCKPIT_", "XDG_", "KUBE", "RAY_", "MLFLOW_"))
    }  # fmt: skip
    return {**kept, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), **more}


def called(argv: list[str], home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a new user."""
    return subprocess.run(
        argv, cwd=home, env=environment(home, **more),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
