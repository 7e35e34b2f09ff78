"""`cockpit version`: cockpit's version, and those of the formats that it reads and writes."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version

from cockpit import __version__
from cockpit.cli.output import tables
from cockpit.model.error import ExitCode
from cockpit.recorder import file as recording
from training.telemetry import wire

PACKAGES = ("textual", "httpx", "ray", "torch", "mlflow")
"""Those of the extra `train` may be missing: then they are left out."""


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    found = {
        "cockpit": __version__,
        "telemetry_format": wire.VERSION,
        "recording_format": recording.VERSION,
        "python": platform.python_version(),
        **installed(),
    }
    if args.output == "table":
        print(*(f"{name.replace('_', ' ')} {number}" for name, number in found.items()), sep="\n")
    else:
        tables.print_object(found, args.output)
    return int(ExitCode.DONE)


def installed() -> dict[str, str]:
    """The versions of PACKAGES that are installed, without importing any."""
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
