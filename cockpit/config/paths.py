"""The directories of cockpit's files, by the XDG base directory specification."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from cockpit.model.error import CockpitError, NotAllowedError


def state_dir() -> Path:
    """Data that must be kept: local clusters, the audit log, recordings."""
    return _base("XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """Data that can be created again: uploaded packages."""
    return _base("XDG_CACHE_HOME", ".cache")


def config_dir() -> Path:
    """Files that the user writes: configuration and themes."""
    return _base("XDG_CONFIG_HOME", ".config")


def make_private(directory: Path) -> None:
    """Create the directory and every missing parent with mode 0700.

    A state or cache directory that others may enter is set to 0700 again. Raises NotAllowedError
    where that cannot be done, and OSError where the directory cannot be created.
    """
    for each in (*reversed(directory.parents), directory):
        # `mkdir(parents=True, mode=0o700)` leaves the parents as open as the umask does.
        if each.is_dir():
            continue
        try:
            each.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError as error:
            what = errno.ENOTDIR
            raise NotADirectoryError(what, os.strerror(what), str(each)) from error
    for root in (state_dir(), cache_dir()):
        if root in (directory, *directory.parents):
            _make_own(root)


def replace_file(
    path: Path, content: str | bytes, *, mode: int = 0o600, durable: bool = False
) -> None:
    """Write the file so that a reader sees the old content or the new, never a part of it.

    `durable`: it is on disk when this returns. Raises OSError with a path.
    """
    import tempfile  # only for writers

    try:
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".tmp")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                if durable:
                    file.flush()
                    os.fsync(fd)
            if mode != 0o600:
                Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        if durable:
            sync_directory(path.parent)
    except OSError as error:
        error.filename = str(path)  # a failed write, as on a full disk, has none
        raise


def sync_directory(directory: Path) -> None:
    """A rename or removal is on disk once the directory is (fsync(2), NOTES)."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _make_own(root: Path) -> None:
    found = root.stat()
    if found.st_uid != os.getuid():
        raise NotAllowedError(
            f"{root} belongs to user {found.st_uid}.",
            "cockpit's files there must belong to you.",
            "Set XDG_STATE_HOME and XDG_CACHE_HOME to directories of yours.",
        )
    if found.st_mode & 0o077:
        root.chmod(0o700)
        mode = stat.S_IMODE(root.stat().st_mode)
        if mode & 0o077:
            raise NotAllowedError(
                f"{root} is open to other users: its mode is {mode:o}.",
                "Its file system does not support changing the mode.",
                "Set XDG_STATE_HOME and XDG_CACHE_HOME to another file system.",
            )


def _base(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    if given.startswith("/"):
        return Path(given) / "cockpit"
    try:
        return Path.home() / default / "cockpit"
    except RuntimeError as error:
        raise CockpitError(
            "There is no home directory to keep files in.",
            "HOME is not set, and this user has no entry in the password database.",
            f"Set HOME, or {variable} to a directory.",
        ) from error
