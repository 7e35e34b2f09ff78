"""The SQLite file of a recording: made, checked, and opened.

One file a run. `batches` holds the events: each body is a zlib stream of lines (see `codec`),
sorted by the moment that they belong to. `markers` is what a replay jumps to. `facts` is the
summary and other values that exist once. The header's `application_id` marks a recording,
`user_version` the version of its schema.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from cockpit.config.process_identity import ProcessId, ProcessState
from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

SUFFIX = ".cockpit"
APPLICATION_ID = 0x434B5054
VERSION = 1
TORN = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Errors when reading a damaged file: sqlite3 cannot decode the message of a damaged schema."""
CACHE_KIB = 256
LOCK_TRIES = 5
LOCK_WAIT_S = 0.02
"""Between them: `is_held` has the lock for an instant."""
BODY_AT_MOST = 256 << 20
"""Bytes of lines that one batch may hold: more is not a batch but a trap."""

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS batches (
        id INTEGER PRIMARY KEY AUTOINCREMENT, from_s REAL NOT NULL, to_s REAL NOT NULL,
        events INTEGER NOT NULL, body BLOB NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS batches_by_time ON batches (from_s)",
    "CREATE TABLE IF NOT EXISTS markers (at_s REAL NOT NULL, kind TEXT NOT NULL, text TEXT)",
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


class NotARecording(CockpitError):
    """The file was not written by the recorder, or cannot be read."""


def open_to_write(path: Path) -> sqlite3.Connection:
    """The recording at `path`, made when it is not there.

    Raises NotARecording, sqlite3.Error or OSError.
    """
    new = not path.exists() or path.stat().st_size == 0
    # Opened by the thread that writes; another thread may close it.
    db = sqlite3.connect(path, isolation_level=None, timeout=5.0, check_same_thread=False)
    try:
        if new:
            path.chmod(0o600)
            db.execute("PRAGMA page_size = 4096")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")
        else:
            check(db, path)
        # Rows are appended: by default SQLite would keep the newest 2 MB of each file in memory.
        db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        for statement in _SCHEMA:
            db.execute(statement)
    except BaseException:
        db.close()
        raise
    return db


def begin(db: sqlite3.Connection) -> None:
    """Before the first write, so that a file that is only read is not changed."""
    db.execute("PRAGMA journal_mode = WAL")
    # A killed process loses nothing that was committed; only a power cut may cost more.
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA journal_size_limit = 4194304")


def open_to_read(path: Path) -> sqlite3.Connection:
    """Raises NotARecording with a sentence for every way in which it is not one."""
    if not path.exists():
        raise NotARecording(f"There is no recording {path}.", todo="cockpit recordings lists them.")
    if path.is_dir():
        raise NotARecording(f"{path} is a directory.", todo="Name one recording in it.")
    uri = path.absolute().as_uri()
    try:
        return _checked(f"{uri}?mode=ro", path)
    except sqlite3.OperationalError:
        # In a directory that is read-only, the index of a write-ahead log cannot be made.
        try:
            return _checked(f"{uri}?mode=ro&immutable=1", path)
        except TORN as error:
            raise unreadable(path, error) from error
    except TORN as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> NotARecording:
    return NotARecording(
        f"{path} cannot be read as a recording.",
        f"SQLite reports: {error}.",
        "Was it copied as a whole? One that is being written is copied with its -wal file.",
    )


def _checked(uri: str, path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    try:
        check(db, path)
        db.execute("SELECT count(*) FROM facts").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def check(db: sqlite3.Connection, path: Path) -> None:
    """Whether it is a recording of a version that is known. Raises NotARecording."""
    ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if not ours:
        empty = path.stat().st_size == 0
        raise NotARecording(
            f"{path} is {'empty' if empty else 'not a recording'}.",
            "" if empty else "It is a database of another program.",
        )
    if version > VERSION:
        raise NotARecording(
            f"{path} was written by a newer cockpit.",
            f"Its schema is version {version}; this cockpit reads up to {VERSION}.",
            "Update cockpit to open it.",
        )


def parts(path: Path) -> list[Path]:
    """The file, and SQLite's temporary files, which exist between commits."""
    return [path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm", "-journal"))]


def remove(path: Path) -> None:
    for part in parts(path):
        part.unlink(missing_ok=True)


def pack(lines: Iterable[str], level: int) -> bytes:
    return zlib.compress("\n".join(lines).encode(errors="replace"), level)


def unpack(body: bytes) -> list[str]:
    """Raises zlib.error or ValueError for what was never packed."""
    stream = zlib.decompressobj()
    text = stream.decompress(body, BODY_AT_MOST)
    if not stream.eof:
        raise ValueError("a batch that is cut off, or larger than any")
    return text.decode().split("\n")


def write_fact(db: sqlite3.Connection, name: str, value: Any) -> None:
    db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))


def facts(db: sqlite3.Connection) -> tuple[dict[str, Any], list[str]]:
    """Return the facts by name, and the names of unreadable ones."""
    found: dict[str, Any] = {}
    unreadable = []
    for name, value in db.execute("SELECT name, value FROM facts"):
        try:
            found[str(name)] = loads(value)
        except (TypeError, ValueError):
            unreadable.append(one_line(str(name), 40))
    return found, unreadable


class LockedError(Exception):
    """Another process holds the lock."""


OWNER_BYTES = 4_096
"""More than the description of a process has."""


class Lock:
    """A lock on a separate file: SQLite releases its own locks at each commit.

    The file names the process, which keeps the recording with no descriptor after `suspend`.
    """

    def __init__(self, recording: Path) -> None:
        self.path = recording.with_name(f".{recording.name}.lock")
        self._fd: int | None = None
        self._is_suspended = False

    def take(self, tries: int = LOCK_TRIES) -> None:
        """Raises LockedError, or OSError where no file can be made."""
        if self._fd is not None:
            return
        refused, own = 0, ProcessId.own()
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The process that had it before may have removed the file between the two calls.
                if os.fstat(fd).st_nlink:
                    _own(fd, own)
                    self._fd, self._is_suspended = fd, False
                    return
            except BlockingIOError as error:
                refused += 1
                if refused >= tries:
                    os.close(fd)
                    raise LockedError from error
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
            if refused:
                time.sleep(LOCK_WAIT_S)

    def suspend(self) -> None:
        """Close the file. Until `release`, or the end of the process, others cannot take it."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._is_suspended = True
            os.close(fd)

    def release(self) -> None:
        if self._is_suspended:
            self._is_suspended = False
            with suppress(LockedError):  # another recorder of this process has it
                self.take(1)
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                self.path.unlink(missing_ok=True)
            finally:
                os.close(fd)


def is_held(recording: Path) -> bool:
    """Whether a recorder writes this file now, or has suspended it and still runs."""
    path = recording.with_name(f".{recording.name}.lock")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared: others that look at the same time are no recorders.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        owner = _owner(fd)
        return owner is not None and owner.life is ProcessState.RUNS
    finally:
        os.close(fd)


def _own(fd: int, own: ProcessId) -> None:
    """Name this process in the file. Raises LockedError if another one has suspended it."""
    owner = _owner(fd)
    if owner == own:
        return  # nothing to write, which a full disk would refuse
    if owner is not None and owner.life is ProcessState.RUNS:
        raise LockedError
    os.ftruncate(fd, 0)
    os.pwrite(fd, msgspec.json.encode(own), 0)


def _owner(fd: int) -> ProcessId | None:
    """The process that the file names; None in that of an older cockpit, which names none."""
    try:
        return msgspec.json.decode(os.pread(fd, OWNER_BYTES, 0), type=ProcessId)
    except msgspec.MsgspecError:
        return None
