"""Wheels in a directory in place of a package index, for hosts without the Internet."""

from __future__ import annotations

import sysconfig
import zipfile
from importlib.metadata import distribution, version
from pathlib import Path

EXTRAS = ("default", "train")


def add_wheel(
    folder: Path, name: str, number: str, files: dict[str, str], entry_points: str = ""
) -> None:
    """A wheel of pure Python with these files, by their path in site-packages.

    `entry_points`: the content of its entry_points.txt.
    """
    info = f"{name}-{number}.dist-info"
    extras = "".join(f"Provides-Extra: {extra}\n" for extra in EXTRAS)
    content = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n{extras}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    record = "".join(f"{path},,\n" for path in (*content, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as archive:
        for path, text in (content | {f"{info}/RECORD": record}).items():
            archive.writestr(path, text)


def add_installed(folder: Path, *names: str) -> None:
    """A wheel for each package of this environment, which has only the path to it.

    It has the package's entry points: torch registers gloo by one of them.
    """
    path = sysconfig.get_path("purelib")
    for name in names:
        files = {f"{name}_of_this_machine.pth": f"{path}\n"}
        points = distribution(name).read_text("entry_points.txt") or ""
        add_wheel(folder, name, version(name), files, points)


def use(home: Path, folder: Path) -> None:
    """Let pip of the user with this home install from the directory alone."""
    (home / ".config/pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_text(
        f"[global]\nno-index = true\nfind-links = {folder}\n"
    )
