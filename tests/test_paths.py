"""The files of cockpit on this machine are readable by its user only."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.actions import audit
from cockpit.config import paths
from cockpit.model.error import NotAllowedError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
@pytest.mark.parametrize("below", ["", "recordings", "drills/journal", "drills/leases"])
def test_every_created_directory_is_private(below: str) -> None:
    paths.make_private(paths.state_dir() / below)
    assert mode(paths.state_dir()) == 0o700
    assert mode(paths.state_dir() / below) == 0o700
    assert mode(paths.state_dir() / below.partition("/")[0]) == 0o700


def test_state_directory_that_others_may_enter_is_repaired() -> None:
    paths.state_dir().mkdir(parents=True)
    paths.state_dir().chmod(0o755)
    audit.require_writable()
    assert mode(paths.state_dir()) == 0o700


def test_state_directory_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    paths.make_private(paths.state_dir())
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(NotAllowedError, match="belongs to user"):
        paths.make_private(paths.state_dir() / "recordings")


def test_state_directory_that_stays_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    paths.state_dir().mkdir(parents=True)
    paths.state_dir().chmod(0o755)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # as vfat takes it
    with pytest.raises(NotAllowedError, match="its mode is 755"):
        paths.make_private(paths.state_dir())


def test_file_in_the_place_of_a_directory_is_not_overwritten() -> None:
    paths.make_private(paths.state_dir().parent)
    paths.state_dir().write_text("mine")
    with pytest.raises(NotADirectoryError):
        paths.make_private(paths.state_dir() / "recordings")
    assert paths.state_dir().read_text() == "mine"


def test_replaced_file_is_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)  # as long as a name may be
    paths.replace_file(path, "old")
    paths.replace_file(path, b"new", durable=True)
    assert (path.read_text(), mode(path), list(tmp_path.iterdir())) == ("new", 0o600, [path])
    paths.replace_file(path, "for all", mode=0o644)
    assert mode(path) == 0o644


def test_failed_write_leaves_the_old_file_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "spec.json"
    paths.replace_file(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/spec\.json'"):
        paths.replace_file(path, "new", durable=True)
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])
