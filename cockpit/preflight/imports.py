"""Which modules of other packages a script imports, from its text. Nothing is imported or run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

MAX_FILES = 500
MAX_FILE_BYTES = 1 << 20


class Imports(Struct, frozen=True):
    """Names of top-level modules, sorted; neither of the standard library nor of the folder."""

    required: tuple[str, ...] = ()
    """Imported when the script starts."""
    optional: tuple[str, ...] = ()
    """Imported within functions, or where a missing module is caught."""


def imported(script: Path, folder: Path) -> Imports:
    """The imports of the script and of the modules of `folder` that it imports.

    A file that cannot be read or parsed has none. At most MAX_FILES files are read.
    """
    found = {True: set[str](), False: set[str]()}
    seen: dict[Path, bool] = {}
    waiting = [(script, True)]
    while waiting and len(seen) < MAX_FILES:
        path, is_required = waiting.pop()
        if seen.get(path, False) or (path in seen and not is_required):
            continue
        seen[path] = is_required
        for name, at_start in _names(path, folder):
            is_needed = is_required and at_start
            top = name.partition(".")[0]
            if files := list(_files(name, folder)):
                waiting += [(file, is_needed) for file in files]
            elif top not in sys.stdlib_module_names and not _is_local(top, folder):
                found[is_needed].add(top)
    return Imports(tuple(sorted(found[True])), tuple(sorted(found[False] - found[True])))


def _names(path: Path, folder: Path) -> Iterator[tuple[str, bool]]:
    """Each imported name with its dots, and whether it is imported when the module is."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            return
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    package = _package(path, folder)
    waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
    while waiting:
        node, at_start = waiting.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, at_start
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package[: len(package) - node.level + 1]
                base = ".".join([*parents, *([base] if base else [])])
            if base:
                yield base, at_start
                for alias in node.names:
                    yield f"{base}.{alias.name}", at_start
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting += [(child, at_start) for child in node.orelse]
        else:
            is_later = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            is_caught = isinstance(node, ast.Try) and bool(node.handlers)
            inside = at_start and not is_later and not is_caught
            waiting += [(child, inside) for child in ast.iter_child_nodes(node)]


def _package(path: Path, folder: Path) -> tuple[str, ...]:
    """The package that a module of the folder is in."""
    try:
        return path.parent.relative_to(folder).parts
    except ValueError:
        return ()


def _files(name: str, folder: Path) -> Iterator[Path]:
    """The files of the folder that an import of this name runs."""
    place = folder
    for part in name.split("."):
        place /= part
        if place.with_name(f"{part}.py").is_file():
            yield place.with_name(f"{part}.py")
            return
        if not place.is_dir():
            return
        if (place / "__init__.py").is_file():
            yield place / "__init__.py"


def _is_local(top: str, folder: Path) -> bool:
    return (folder / top).is_dir() or (folder / f"{top}.py").is_file()
