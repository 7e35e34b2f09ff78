"""Folders for sockets: for us alone, and removed even if their process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.backends import private_folder as module
from cockpit.backends.private_folder import PREFIX, PrivateFolder, private_folder


@pytest.fixture(autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(module, "UNLOCKED_S", -1.0)
    return folder


def left_by_a_killed_process(runtime: Path) -> Path:
    code = (
        "from cockpit.backends.private_folder import PrivateFolder\n"
        "folder = PrivateFolder(); (folder.path / 'key').write_text('secret')\n"
        "print(folder.path, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"XDG_RUNTIME_DIR": str(runtime)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        with private_folder():
            assert path.is_dir(), "its process is alive"
        process.send_signal(signal.SIGKILL)
    assert path.is_dir()
    return path


def test_folder_is_for_its_user_alone_and_ends_with_the_block(runtime: Path) -> None:
    with private_folder() as folder:
        assert folder.parent == runtime
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "s").touch()
    assert not list(runtime.iterdir())


def test_folder_of_a_killed_process_is_removed_by_the_next_one(runtime: Path) -> None:
    path = left_by_a_killed_process(runtime)
    with private_folder():
        assert not path.exists()


def test_young_folder_without_a_lock_is_kept(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has made it, and has not locked it yet."""
    monkeypatch.setattr(module, "UNLOCKED_S", 60.0)
    young = runtime / f"{PREFIX}12345678"
    young.mkdir()
    with private_folder():
        assert young.is_dir()


def test_link_with_the_name_of_a_folder_is_not_followed(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    (runtime / f"{PREFIX}12345678").symlink_to(tmp_path)
    with private_folder():
        assert (tmp_path / "kept").exists()


def test_removal_again_does_nothing() -> None:
    folder = PrivateFolder()
    folder.remove()
    folder.remove()
