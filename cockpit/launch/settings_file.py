"""Read a file of job settings, as a hyperparameter search writes it.

{"job": "ddp", "settings": {"learning_rate": 0.003, "batch_size": 32}} or the settings alone, as
JSON or as TOML. Other keys beside `job` and `settings`, such as scores, are ignored.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from cockpit.launch.job import BundledJob
from cockpit.model.decoding import limited_json
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

STANDARD_INPUT = "-"


class SettingsFile(Struct, frozen=True):
    name: str
    """Its name in messages."""
    job: str
    """The job of the settings; "" if the file names none."""
    settings: Mapping[str, str]

    def require(self, job: BundledJob) -> None:
        """Raises UsageError that names the file when these are not settings of that job."""
        if self.job not in ("", job.name):
            raise UsageError(
                f"The settings in {self.name} are for {self.job}, not for {job.name}.",
                todo=f'cockpit launch {self.job}, or take "job" out of the file.',
            )
        try:
            for name, value in self.settings.items():
                job.require(job.setting(name), value)
        except UsageError as error:
            raise UsageError(f"In {self.name}: {error.what}", error.why, error.todo) from error


def read(path: str) -> SettingsFile:
    """Read the file at `path`, or standard input for `-`. Raises UsageError."""
    if path == STANDARD_INPUT:
        name = "standard input"
        return parsed(decoded(sys.stdin.buffer.read, name), name)
    return parsed(decoded(Path(path).expanduser().read_bytes, path), path)


def decoded(read_bytes: Callable[[], bytes], name: str) -> str:
    """The text of a file of the user. Raises UsageError with its name."""
    try:
        return read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 text.", f"{error.reason} at byte {error.start}."
        ) from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read.", f"{error.strerror}.") from error


def parsed(text: str, name: str) -> SettingsFile:
    """Parse JSON if the text begins with an object, else TOML. Raises UsageError."""
    kind = "JSON" if name.endswith(".json") or text.lstrip().startswith("{") else "TOML"
    try:
        raw = limited_json.loads(text) if kind == "JSON" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not {kind}.", f"{one_line(str(error))}.") from error
    if not isinstance(raw, dict):
        raise UsageError(f"{name} is not a table of settings.", todo=f"For example: {_EXAMPLE}")
    job, settings = "", raw
    if isinstance(raw.get("settings"), dict):
        job, settings = raw.get("job", ""), raw["settings"]
        if not isinstance(job, str):
            raise UsageError(f"job in {name} is not a string.", todo=f"For example: {_EXAMPLE}")
    if not settings:
        raise UsageError(f"{name} has no settings.", todo=f"For example: {_EXAMPLE}")
    texts = {_key(key): _text(name, key, value) for key, value in settings.items()}
    return SettingsFile(name, job, texts)


def _key(name: str) -> str:
    return name.replace("-", "_")


def _text(file: str, key: str, value: Any) -> str:
    """As one would type it on a command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, str)):
        return str(value)
    raise UsageError(
        f"{one_line(key, 60)} in {file} is {one_line(json.dumps(value, default=str), 60)}.",
        "A setting is a string, a number, true or false.",
    )


_EXAMPLE = '{"job": "ddp", "settings": {"epochs": 5}}'
