"""Where cockpit keeps its own files, by the XDG base directories."""

from __future__ import annotations

import os
from pathlib import Path

from cockpit.model.error import CockpitError


def state_dir() -> Path:
    """What must survive: local clusters, the audit log, recordings."""
    return _base("XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """What can be made again: uploaded packages."""
    return _base("XDG_CACHE_HOME", ".cache")


def config_dir() -> Path:
    """What the user wrote: configuration and themes."""
    return _base("XDG_CONFIG_HOME", ".config")


def _base(variable: str, default: str) -> Path:
    given = os.environ.get(variable, "")
    if given.startswith("/"):
        return Path(given) / "cockpit"
    try:
        return Path.home() / default / "cockpit"
    except RuntimeError as error:
        raise CockpitError(
            "There is no home directory to keep files in.",
            "HOME is not set, and this user is not in the list of users.",
            f"Set HOME, or {variable} to a directory.",
        ) from error
