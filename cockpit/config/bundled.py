"""The files that cockpit brings along beside its code: the manifests, and what images are built of.

In a wheel they are in the package `cockpit`; in a clone of the repository they are in its root.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
PROJECT_FILES = ("constraints.txt", "pyproject.toml", "README.md", "LICENSE")
"""The files beside the packages that `manifests/image/build.sh` reads."""


def is_installed() -> bool:
    """Whether this is a wheel, and not a clone of the repository."""
    return (PACKAGE / "manifests").is_dir()


def manifests() -> Path:
    """The folder of the manifests, with `kubernetes`, `image` and others in it."""
    return (PACKAGE if is_installed() else PACKAGE.parent) / "manifests"


def themes() -> Path:
    return (PACKAGE if is_installed() else PACKAGE.parent) / "themes"


def project_file(name: str) -> Path:
    """One of PROJECT_FILES."""
    return PACKAGE / "project" / name if is_installed() else PACKAGE.parent / name
