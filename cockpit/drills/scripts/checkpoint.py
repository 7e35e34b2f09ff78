"""Damage a checkpoint, so that it can be mended.

    checkpoint.py check DIRECTORY
    checkpoint.py corrupt NAME DIRECTORY     flip bytes in the middle of its largest file
    checkpoint.py delete NAME DIRECTORY      take half of its files away, the largest first
    checkpoint.py restore NAME DIRECTORY

What was there is kept in a folder beside the checkpoint until it is restored.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

FLIPPED = 64


def files(directory: Path) -> list[Path]:
    """The largest first."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    if not found:
        raise FileNotFoundError(f"there is no checkpoint in {directory}, as this pod sees it")
    return sorted(found, key=lambda path: (-path.stat().st_size, path.name))


def kept(name: str, directory: Path) -> Path:
    return directory.parent / f".{name}"


def keep(name: str, directory: Path, paths: Sequence[Path]) -> None:
    for path in paths:
        copy = kept(name, directory) / path.relative_to(directory)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)


def corrupt(name: str, directory: Path) -> None:
    path = files(directory)[0]
    keep(name, directory, [path])
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(max(0, size // 2 - FLIPPED // 2))
        there = file.read(FLIPPED)
        file.seek(-len(there), 1)
        file.write(bytes(byte ^ 0xFF for byte in there))
    print(f"flipped {len(there)} bytes of {path.name} ({size} bytes)")


def delete(name: str, directory: Path) -> None:
    found = files(directory)
    gone = found[: max(1, len(found) // 2)]
    keep(name, directory, gone)
    for path in gone:
        path.unlink()
    print(f"took {len(gone)} of {len(found)} files away")


def restore(name: str, directory: Path) -> None:
    """A checkpoint that was moved or removed meanwhile is not made again."""
    folder = kept(name, directory)
    if not folder.exists():
        return
    if directory.exists():
        for copy in [path for path in folder.rglob("*") if path.is_file()]:
            shutil.copy2(copy, directory / copy.relative_to(folder))
    shutil.rmtree(folder)


def main(argv: Sequence[str]) -> int:
    try:
        if argv[0] == "check":
            files(Path(argv[1]))
        else:
            {"corrupt": corrupt, "delete": delete, "restore": restore}[argv[0]](
                argv[1], Path(argv[2])
            )
    except PermissionError as error:
        print(error, file=sys.stderr)
        return 3
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
