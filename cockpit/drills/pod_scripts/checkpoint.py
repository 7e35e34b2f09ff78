"""Damage a checkpoint, and restore it from copies that were verified.

    checkpoint.py check corrupt|delete DIRECTORY
    checkpoint.py corrupt NAME DIRECTORY            flip bytes in the middle of its largest file
    checkpoint.py delete NAME DIRECTORY             remove half of its files, the largest first
    checkpoint.py restore NAME DIRECTORY [refuse]

Files are copied to the folder `.NAME` beside the checkpoint before they are damaged. The file
`complete.json`, with the size and SHA-256 of each copy, is written once all copies are on disk: no
file is damaged before it exists, and no file is restored without it. `restore` stops a copy that is
still running, waits for its end, verifies each copy, and renames it into place. A file that has
changed since it was damaged is not restored. With `refuse` a damage of this NAME that starts later
fails.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cockpit.drills.pod_scripts.linux.file_lock import locked, sync, write_atomically
from cockpit.drills.pod_scripts.linux.process import Failed, ended

FLIPPED = 64
BLOCK = 4 << 20
WAIT_S = 45.0
"""For a copy to notice that it is to stop: one block at most, on storage that is slow."""


class Damage(NamedTuple):
    """The damage of one file. Bytes `start` to `end` are flipped; without `end` it is removed."""

    path: Path
    size: int
    start: int
    end: int


class Kept(NamedTuple):
    """The folder beside the checkpoint that contains the original files."""

    folder: Path

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def complete(self) -> Path:
        return self.folder / "complete.json"

    @property
    def undone(self) -> Path:
        """Exists once a restore has begun, or came before the damage."""
        return self.folder / "undone"


def kept(name: str, directory: Path) -> Kept:
    return Kept(directory.parent / f".{name}")


def regular_files(directory: Path) -> list[Path]:
    """The largest first. A link may lead out of the checkpoint: it is not followed."""
    found = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    if not found:
        raise FileNotFoundError(f"there is no checkpoint in {directory}, as this pod sees it")
    return sorted(found, key=lambda path: (-path.stat().st_size, path.name))


def planned(way: str, directory: Path) -> list[Damage]:
    """Raises OSError where there is no room for copies, and for the next checkpoint after them."""
    found = regular_files(directory)
    sizes = {path: path.stat().st_size for path in found}
    if way == "corrupt":
        path = found[0]
        start = max(0, sizes[path] // 2 - FLIPPED // 2)
        damages = [Damage(path, sizes[path], start, min(start + FLIPPED, sizes[path]))]
    else:
        damages = [Damage(path, sizes[path], 0, 0) for path in found[: max(1, len(found) // 2)]]
    copies = sum(damage.size * (2 if shared(damage) else 1) for damage in damages)
    room = os.statvfs(directory.parent)
    free, needed = room.f_bavail * room.f_frsize, copies + sum(sizes.values())
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"{free >> 20} MiB are free, and {needed >> 20} MiB are needed for the copies and for "
            "the run's next checkpoint",
            str(directory.parent),
        )
    return damages


def shared(damage: Damage) -> bool:
    """A change in place would damage all hard links to the file."""
    return bool(damage.end) and damage.path.stat().st_nlink > 1


def damage(way: str, name: str, directory: Path) -> None:
    own, damages = kept(name, directory), planned(way, directory)
    try:
        own.folder.mkdir(mode=0o700)
    except FileExistsError:
        if own.undone.exists() and not own.complete.exists():
            shutil.rmtree(own.folder)
            raise Failed("it was undone before it began") from None
        raise Failed(f"{own.folder} is there already") from None
    try:
        with locked(own.lock, WAIT_S):
            try:
                records = [copied(own, directory, one) for one in damages]
                require_not_undone(own)
                sync(own.files)
                write_atomically(own.complete, json.dumps(records))
                sync(own.folder.parent)
                require_not_undone(own)
            except BaseException:
                shutil.rmtree(own.folder, ignore_errors=True)  # nothing is damaged yet
                raise
            for one in damages:
                flip(own, one) if one.end else one.path.unlink()
    except FileNotFoundError as error:
        if own.folder not in Path(str(error.filename)).parents:
            raise
        raise Failed("it was undone before it began") from None
    if way == "corrupt":
        path, size, start, end = damages[0]
        print(f"flipped {end - start} bytes of {path.name} ({size} bytes)")
    else:
        print(f"removed {len(damages)} files")


def require_not_undone(own: Kept) -> None:
    if own.undone.exists():
        raise Failed("it was undone before it began")


def copied(own: Kept, directory: Path, one: Damage) -> dict[str, Any]:
    """Copy the file and write the copy to disk; returns its record."""
    name = one.path.relative_to(directory)
    copy = own.files / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    part = copy.with_name(f"{copy.name}.part")
    digest, size = hashlib.sha256(), 0
    with one.path.open("rb") as source, part.open("xb") as target:
        while block := source.read(BLOCK):
            require_not_undone(own)
            target.write(block)
            digest.update(block)
            size += len(block)
        target.flush()
        shutil.copystat(one.path, part)
        with suppress(PermissionError):  # not root: the owner is already the same, or cannot be set
            owner = os.fstat(source.fileno())
            os.chown(part, owner.st_uid, owner.st_gid)
        os.fsync(target.fileno())
    if size != one.size:
        raise OSError(errno.EAGAIN, "it changed while it was copied", str(one.path))
    part.replace(copy)
    sync(copy.parent)
    return {
        "name": str(name), "size": size, "sha256": digest.hexdigest(),
        "start": one.start, "end": one.end,
    }  # fmt: skip


def flip(own: Kept, one: Damage) -> None:
    path = one.path
    if shared(one):
        path = own.folder / "unshared"
        shutil.copy2(one.path, path)
    with path.open("r+b") as opened:
        opened.seek(one.start)
        there = opened.read(one.end - one.start)
        opened.seek(one.start)
        opened.write(bytes(byte ^ 0xFF for byte in there))
    if path != one.path:
        path.replace(one.path)


def restore(name: str, directory: Path, refuse: bool) -> None:
    own = kept(name, directory)
    if not own.folder.exists():
        if not refuse:
            return
        with suppress(FileExistsError):
            own.folder.mkdir(mode=0o700)
            own.undone.touch()
            return
    try:
        own.undone.touch()
        with locked(own.lock, WAIT_S):
            failures = []
            if own.complete.exists():
                for record in json.loads(own.complete.read_text()):
                    try:
                        if why_not := restored(own, directory, record):
                            print(why_not)
                    except (Failed, OSError) as error:  # the other files are restored all the same
                        failures.append(str(error))
            if failures:
                raise Failed("; ".join(failures))
            shutil.rmtree(own.folder)
    except FileNotFoundError:
        if own.folder.exists():
            raise


def restored(own: Kept, directory: Path, record: dict[str, Any]) -> str:
    """Restore one file. Return why it was not restored, or nothing.

    Raises Failed when the copy differs from the original.
    """
    copy, path = own.files / record["name"], directory / record["name"]
    if not path.parent.is_dir() or (record["end"] and not path.exists()):
        return f"{path} was removed since it was damaged"
    if not copy.exists():  # an earlier restore was killed after it had put this one back
        if path.exists() and digest_of(path) == record["sha256"]:
            return ""
        raise Failed(f"the copy {copy} is missing")
    if copy.stat().st_size != record["size"] or digest_of(copy) != record["sha256"]:
        raise Failed(f"the copy {copy} is not as it was made: {path} is left as it is")
    if path.exists():
        if digest_of(path) == record["sha256"]:
            return ""
        if not differs_only_between(path, copy, record["start"], record["end"]):
            return f"{path} has changed since it was damaged: it is left as it is"
    try:
        copy.replace(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = path.with_name(f".{own.folder.name}.part")
        shutil.copy2(copy, part)
        with part.open("rb") as opened:
            os.fsync(opened.fileno())
        part.replace(path)
    sync(path.parent)
    return ""


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def differs_only_between(path: Path, copy: Path, start: int, end: int) -> bool:
    """Whether the two are the same except for bytes `start` to `end`."""
    if path.stat().st_size != copy.stat().st_size:
        return False
    at = 0
    with path.open("rb") as one, copy.open("rb") as other:
        while left := one.read(BLOCK):
            right = other.read(BLOCK)
            low, high = max(0, start - at), max(0, end - at)
            if left[:low] != right[:low] or left[high:] != right[high:]:
                return False
            at += len(left)
    return True


def main() -> None:
    verb, first, *rest = sys.argv[1:]
    if verb == "check":
        planned(first, Path(rest[0]))
    elif verb == "restore":
        restore(first, Path(rest[0]), "refuse" in rest[1:])
    else:
        damage(verb, first, Path(rest[0]))


sys.exit(ended(main))
