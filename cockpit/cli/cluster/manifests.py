"""`cockpit manifests`: list, show or write the manifests and examples that come with cockpit."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from cockpit import __version__
from cockpit.cli.output import tables
from cockpit.config import bundled
from cockpit.launch.package import training_directory
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.model.text import one_line

ACTIONS = ("list", "show", "write")
COLUMNS = ("name", "size_bytes")
IGNORED = ("__pycache__", "*.pyc")


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "List the manifests, the Dockerfiles and the examples that come with cockpit. show prints "
        "one; write copies all to a new directory, with the sources of the images."
    )
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=ACTIONS,
        help="list: the files; show: print one; write: copy all to a directory (default: list)",
    )
    parser.add_argument(
        "name",
        nargs="?",
        help="show: a file of the list. write: the directory to create (default: "
        f"cockpit-{__version__})",
    )
    tables.arguments(parser, tables.LISTS)


def run(args: argparse.Namespace) -> int:
    if args.action == "show":
        sys.stdout.write(_file(args.name or "").read_text(encoding="utf-8"))
    elif args.action == "write":
        _write(Path(args.name or f"cockpit-{__version__}").expanduser())
    elif args.name:
        raise UsageError("manifests list takes no name.", todo="See: cockpit manifests show NAME")
    else:
        _list(args)
    return int(ExitCode.DONE)


def files() -> Iterator[Path]:
    """The files of the manifests, in the order of their names."""
    root = bundled.manifests()
    if not root.is_dir():
        raise CockpitError(
            "The manifests of cockpit are missing.",
            f"There is no {root}.",
            "Install cockpit again.",
        )
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def names() -> list[str]:
    return [str(path.relative_to(bundled.manifests())) for path in files()]


def _list(args: argparse.Namespace) -> None:
    root = bundled.manifests()
    rows = [
        {
            "name": str(path.relative_to(root)),
            "size_bytes": path.stat().st_size,
            "path": str(path),
        }
        for path in files()
    ]
    tables.print_rows(rows, (*COLUMNS, "path") if args.wide else COLUMNS, args.output)


def _file(name: str) -> Path:
    """The file with this name in the list; `manifests/` may precede it. Raises UsageError."""
    wanted = name.removeprefix("manifests/")
    if wanted not in names():
        raise UsageError(
            f"There is no manifest {one_line(name)!r}." if name else "Which manifest?",
            todo="cockpit manifests lists them.",
        )
    return bundled.manifests() / wanted


def _write(target: Path) -> None:
    """Copy the manifests, and what `image/build.sh` builds from, as they are in the repository."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(
            f"{target} exists and is not an empty directory.", todo="Name a new directory."
        )
    training = training_directory()
    sources = {
        "manifests": bundled.manifests(),
        "themes": bundled.themes(),
        "cockpit": bundled.PACKAGE,
        "training": training,
    }
    parts = {bundled.PACKAGE / name for name in ("manifests", "themes", "project")}

    def ignored(folder: str, inside: list[str]) -> set[str]:
        """Of the package, what is in the root of a clone, and compiled modules everywhere."""
        found = set(shutil.ignore_patterns(*IGNORED)(folder, inside))
        return found | {name for name in inside if Path(folder, name) in parts}

    try:
        for name, source in sources.items():
            shutil.copytree(source, target / name, ignore=ignored)
        for name in bundled.PROJECT_FILES:
            shutil.copyfile(bundled.project_file(name), target / name)
        script = target / "manifests" / "image" / "build.sh"
        script.chmod(0o755)  # a wheel may be unpacked without modes
    except OSError as error:
        raise CockpitError(
            f"The manifests cannot be written to {target}.",
            error.strerror or str(error),
            "Name another directory.",
        ) from error
    print(f"Wrote {target}. In this directory, the commands of the documentation work, such as:")
    print("  manifests/image/build.sh --name registry.example.com/cockpit-train")
    print("  kubectl apply -k manifests/kubernetes/overlays/recovery")
