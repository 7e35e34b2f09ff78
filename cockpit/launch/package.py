"""Directories as packages that Ray unpacks on every node: zip files named by their content."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import zipfile
from pathlib import Path

from msgspec import Struct

from cockpit.config import paths
from cockpit.launch.folder import Folder, folder
from cockpit.model.error import CockpitError, UsageError

SIZE_LIMIT_BYTES = 100 * 1024 * 1024
"""Ray's dashboard takes no larger body (DASHBOARD_CLIENT_MAX_SIZE)."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can store: the same content is the same package."""


class Package(Struct, frozen=True):
    name: str
    """`_ray_pkg_<hash>.zip`, as Ray's own launcher has it."""
    path: Path

    @property
    def uri(self) -> str:
        return f"gcs://{self.name}"

    def read(self) -> bytes:
        return self.path.read_bytes()


def package_training() -> Package:
    """Package the `training` package that is installed with cockpit."""
    return package_directory(training_directory(), inside="training", ignore_files=False)


def training_directory() -> Path:
    found = importlib.util.find_spec("training")  # does not import it
    places = list(found.submodule_search_locations or ()) if found else []
    if not places:
        raise CockpitError(
            "The package training is not installed.",
            "The bundled jobs and the telemetry callback are part of it.",
            "Reinstall cockpit.",
        )
    return Path(places[0])


def package_directory(directory: Path, *, inside: str = "", ignore_files: bool = True) -> Package:
    """What `folder` chooses below `directory`, in a folder `inside` of the package when one is
    named. Raises UsageError when it is larger than Ray takes.
    """
    return package_folder(folder(directory, ignore_files=ignore_files), inside=inside)


def package_folder(chosen: Folder, *, inside: str = "") -> Package:
    """As `package_directory`, of files that are chosen already."""
    return _package(_named(chosen, inside))


def package_together(chosen: Folder | None, *, with_training: bool, inside: str = "") -> Package:
    """Package the user's code (None: none) and the `training` package as one working directory.

    For a file that both contain, the user's is used. Raises UsageError above Ray's size limit.
    """
    files: dict[str, Path] = {}
    if with_training:
        files = _named(folder(training_directory(), ignore_files=False), "training")
    if chosen is not None:
        files |= _named(chosen)
    return _package({str(Path(inside, name)): path for name, path in sorted(files.items())})


def _named(chosen: Folder, inside: str = "") -> dict[str, Path]:
    _require_size(chosen)
    return {str(Path(inside, file.name)): file.path for file in chosen.files}


def _package(files: dict[str, Path]) -> Package:
    digest = hashlib.sha256()
    contents: list[tuple[str, int, bytes]] = []
    for name, path in files.items():
        data, mode = path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644
        contents.append((name, mode, data))
        digest.update(f"{len(name)}:{name}:{mode}:{len(data)}:".encode() + data)
    package = cached_package(f"_ray_pkg_{digest.hexdigest()[:32]}.zip")
    if not package.path.exists():
        paths.make_private(package.path.parent)
        paths.replace_file(package.path, _zip(contents))
    return package


def cached_package(name: str) -> Package:
    """Return the path for a package of that name, which may not exist."""
    return Package(name, paths.cache_dir() / "packages" / Path(name).name)


def _require_size(chosen: Folder) -> None:
    if chosen.size_bytes <= SIZE_LIMIT_BYTES:
        return
    largest = sorted(chosen.files, key=lambda file: -file.size_bytes)[:3]
    named = ", ".join(f"{file.name} ({file.size_bytes >> 20} MiB)" for file in largest)
    raise UsageError(
        f"{chosen.directory} is {chosen.size_bytes >> 20} MiB; "
        f"the limit for a job is {SIZE_LIMIT_BYTES >> 20} MiB.",
        f"Largest files: {named}.",
        "Exclude what the job does not need in .rayignore, and read data from shared storage.",
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
