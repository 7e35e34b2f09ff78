"""Directories as packages that Ray unpacks on every node: zip files named by their content."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
import io
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cockpit import paths
from cockpit.model.error import CockpitError, UsageError

SIZE_LIMIT_BYTES = 100 * 1024 * 1024
"""Ray's dashboard takes no larger body (DASHBOARD_CLIENT_MAX_SIZE)."""

SKIPPED = frozenset(
    {".git", ".hg", ".venv", "venv", "node_modules", ".tox", ".nox", ".idea", ".vscode"}
    | {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"}
)
SKIPPED_FILES = ("*.pyc", "*.pyo", ".DS_Store", "*.swp")

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can tell: the same content is the same package."""


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    """`_ray_pkg_<hash>.zip`, as Ray's own launcher has it."""
    path: Path

    @property
    def uri(self) -> str:
        return f"gcs://{self.name}"

    def read(self) -> bytes:
        return self.path.read_bytes()


def package_training() -> Package:
    """The `training` package that is installed beside cockpit."""
    return package_directory(training_directory(), inside="training")


def training_directory() -> Path:
    found = importlib.util.find_spec("training")  # does not import it
    places = list(found.submodule_search_locations or ()) if found else []
    if not places:
        raise CockpitError(
            "The package `training` is not installed",
            "the bundled jobs and the telemetry callback come from it",
            "reinstall cockpit",
        )
    return Path(places[0])


def package_directory(directory: Path, *, inside: str = "") -> Package:
    """The files below `directory`, in a folder `inside` of the package when one is named.

    Follows links to files, not to folders. Version control, virtual environments and caches are
    left out. Raises UsageError when it is larger than Ray takes.
    """
    files = list(_files(directory))
    _require_size(directory, files)
    return _package({str(Path(inside, path.relative_to(directory))): path for path in files})


def package_together(directory: Path | None, *, with_training: bool, inside: str = "") -> Package:
    """The user's code (None: none) and, beside it, the `training` package: one working directory.

    A file that both have is the user's. Raises UsageError when it is larger than Ray takes.
    """
    files: dict[str, Path] = {}
    if with_training:
        ours = training_directory()
        files = {str(Path("training", path.relative_to(ours))): path for path in _files(ours)}
    if directory is not None:
        own = list(_files(directory))
        _require_size(directory, own)
        files |= {str(path.relative_to(directory)): path for path in own}
    return _package({str(Path(inside, name)): path for name, path in sorted(files.items())})


def _package(files: dict[str, Path]) -> Package:
    """By the name that each file has in it."""
    digest = hashlib.sha256()
    contents: list[tuple[str, int, bytes]] = []
    for name, path in files.items():
        data, mode = path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644
        contents.append((name, mode, data))
        digest.update(f"{len(name)}:{name}:{mode}:{len(data)}:".encode() + data)
    package = cached_package(f"_ray_pkg_{digest.hexdigest()[:32]}.zip")
    if not package.path.exists():
        _write(package.path, _zip(contents))
    return package


def cached_package(name: str) -> Package:
    """Where a package of that name is kept, whether or not it is there."""
    return Package(name, paths.cache_dir() / "packages" / Path(name).name)


def _files(directory: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            path = Path(folder, name)
            skipped = any(fnmatch.fnmatch(name, pattern) for pattern in SKIPPED_FILES)
            if not skipped and path.is_file():
                yield path


def _require_size(directory: Path, files: list[Path]) -> None:
    sizes = {path: path.stat().st_size for path in files}
    total = sum(sizes.values())
    if total <= SIZE_LIMIT_BYTES:
        return
    largest = sorted(sizes, key=lambda path: -sizes[path])[:3]
    named = ", ".join(f"{p.relative_to(directory)} ({sizes[p] >> 20} MiB)" for p in largest)
    raise UsageError(
        f"{directory} has {total >> 20} MiB; a job can bring {SIZE_LIMIT_BYTES >> 20} MiB",
        f"the largest are {named}",
        "start from a folder with only the code, and read data from shared storage",
    )


def _zip(contents: list[tuple[str, int, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, mode, data in contents:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = (0o100000 | mode) << 16
            info.create_system = 3  # Unix, wherever it is made
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _write(path: Path, data: bytes) -> None:
    """All or nothing: another cockpit may be writing the same package."""
    paths.make_private(path.parent)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)
