"""The environment of a job: variables, packages, code and the driver's resources.

The fields are those of Ray's runtime environment:
https://docs.ray.io/en/latest/ray-core/handling-dependencies.html#api-reference
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from cockpit.launch.settings_file import decoded
from cockpit.model.decoding import limited_yaml
from cockpit.model.decoding.limited_json import LimitError
from cockpit.model.decoding.limited_yaml import InvalidYamlError
from cockpit.model.driver import NOTHING_RESERVED, DriverResources
from cockpit.model.error import UsageError
from cockpit.model.text import as_sentence, one_line

INSTALLERS = ("pip", "uv", "conda")
"""Fields that install packages; Ray takes one of them."""
OWN_FIELDS = ("env_vars", "working_dir", "py_modules")
"""Fields that cockpit adds to."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", start=1)}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(k|[KMGT]i?)?B?")
_LOCAL = re.compile(r"(-e|--editable|-r|--requirement|-c|--constraint|\.{0,2}/|file:)", re.I)
"""How a line of a requirements file that names another local file or folder begins."""


class JobEnvironment(Struct, frozen=True):
    """The requested environment; each field is empty by default."""

    env_vars: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    """A folder on this host, or a URI that every node can read."""
    py_modules: tuple[str, ...] = ()
    """URIs."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Every other field of the runtime environment, as Ray takes it: `pip`, `conda`, …"""
    driver: DriverResources = NOTHING_RESERVED

    @property
    def installs(self) -> str:
        """The installer and its packages as a phrase; "" without packages."""
        for installer in INSTALLERS:
            if given := self.others.get(installer):
                packages = given.get("packages", given) if isinstance(given, Mapping) else given
                listed = [packages] if isinstance(packages, str) else [*packages]
                return f"{installer}: {', '.join(one_line(str(name), 60) for name in listed)}"
        return ""


AS_DEFAULT = JobEnvironment()


def is_uri(place: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]*://", place) is not None


def variables(pairs: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """Environment variables of `--env-file` and `--env`; the latter win.

    A pair is `KEY=VALUE`, or `KEY` for the value that it has in this process. Raises UsageError.
    """
    found: dict[str, str] = {}
    for path in files:
        found |= _variables_of(path)
    for pair in pairs:
        name, separator, value = pair.partition("=")
        _require_variable(name, "--env")
        if not separator:
            if name not in os.environ:
                raise UsageError(
                    f"--env {name} has no value.",
                    "That variable is not set here.",
                    f"--env {name}=VALUE",
                )
            value = os.environ[name]
        found[name] = value
    return found


def _variables_of(path: str) -> dict[str, str]:
    from dotenv.parser import parse_stream

    found: dict[str, str] = {}
    with _opened(path) as stream:
        for binding in parse_stream(stream):
            if binding.error or (binding.key is not None and binding.value is None):
                raise UsageError(  # without the text: it may be a secret
                    f"Line {binding.original.line} of {one_line(path)} is not KEY=VALUE."
                )
            if binding.key is not None:
                _require_variable(binding.key, one_line(path))
                found[binding.key] = binding.value or ""
    return found


def _require_variable(name: str, where: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise UsageError(
            f"{one_line(name, 60)!r} in {where} is not the name of an environment variable."
        )


def packages(named: Iterable[str], files: Iterable[str] = ()) -> list[str]:
    """Packages in the order given, with those of requirements files. Raises UsageError.

    A file is read here, since the cluster does not have it.
    """
    found = [*named]
    for path in files:
        with _opened(path) as stream:
            for number, line in enumerate(stream, start=1):
                text = re.sub(r"(^|\s)#.*", "", line).strip()
                if _LOCAL.match(text):
                    raise UsageError(
                        f"Line {number} of {one_line(path)} names a file of this host.",
                        f"{one_line(text, 80)}: the nodes of the cluster do not have it.",
                        "List the packages themselves, or put them into the image.",
                    )
                if text:
                    found.append(text)
    return found


def size_bytes(text: str, flag: str) -> int:
    """Bytes of `4Gi`, `500M` or `1000`, as Kubernetes writes them. Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{flag} {one_line(text, 40)} is not a size.", todo="For example: 4Gi")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def read_file(path: str) -> JobEnvironment:
    """A runtime environment in YAML or JSON, as `ray job submit --runtime-env` reads it.

    Raises UsageError.
    """
    name = one_line(path)
    with _opened(path) as stream:
        try:
            raw = limited_yaml.loads(stream.read())
        except InvalidYamlError as error:
            where = f" (line {error.line})" if error.line is not None else ""
            why = as_sentence(str(error))
            raise UsageError(f"{name} is not YAML or JSON{where}.", why) from error
        except LimitError as error:
            why = as_sentence(one_line(str(error)))
            raise UsageError(f"{name} is not a runtime environment.", why) from error
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise UsageError(f"{name} is not a runtime environment.", todo=f"For example: {_EXAMPLE}")
    env_vars, modules = raw.get("env_vars") or {}, raw.get("py_modules") or []
    if not isinstance(env_vars, dict) or not all(
        isinstance(word, str) for pair in env_vars.items() for word in pair
    ):
        raise UsageError(f"env_vars in {name} is not a map of strings to strings.")
    for variable in env_vars:
        _require_variable(variable, name)
    if not isinstance(modules, list) or not all(is_uri(str(module)) for module in modules):
        raise UsageError(
            f"py_modules in {name} is not a list of URIs.",
            "A folder of this host is uploaded as the working directory only.",
            "Put the module into --working-dir, or upload it: s3://bucket/module.zip",
        )
    if "excludes" in raw:
        raise UsageError(f"excludes in {name} is not read.", todo="Use .gitignore or .rayignore.")
    working_dir = raw.get("working_dir") or ""
    if not isinstance(working_dir, str):
        raise UsageError(f"working_dir in {name} is not a folder or a URI.")
    others = {key: value for key, value in raw.items() if key not in OWN_FIELDS}
    for installer in ("pip", "uv"):
        if installer in others:
            others[installer] = _installed(others[installer], f"{installer} in {name}")
    require_one_installer(others)
    return JobEnvironment(env_vars, working_dir, tuple(map(str, modules)), others)


def _installed(given: Any, where: str) -> Any:
    """`pip` or `uv` as Ray takes it over HTTP: the content of a requirements file, not its path."""
    if isinstance(given, str):
        return packages((), [given])
    if isinstance(given, dict) and isinstance(given.get("packages"), (str, list)):
        return {**given, "packages": _installed(given["packages"], where)}
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        return given
    raise UsageError(f"{where} is not a list of packages or a requirements file.")


def require_one_installer(others: Mapping[str, Any]) -> None:
    """Raises UsageError for two installers, which Ray refuses when the job starts."""
    given = [name for name in INSTALLERS if name in others]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be combined.", todo="Use one of them.")


def driver_resources(pairs: Sequence[str]) -> dict[str, float]:
    """Custom resources of `--driver-resource NAME=N`. Raises UsageError."""
    found: dict[str, float] = {}
    for pair in pairs:
        name, _, number = pair.partition("=")
        try:
            found[name] = float(number)
        except ValueError:
            name = ""
        if not name or found[name] <= 0:
            raise UsageError(
                f"--driver-resource {one_line(pair, 60)!r} is not NAME=N.",
                todo="For example: --driver-resource slot=1",
            )
        if name in _BUILT_IN:
            raise UsageError(f"Use {_BUILT_IN[name]} for {name}.")
    return found


_BUILT_IN = {"CPU": "--driver-cpus", "GPU": "--driver-gpus", "memory": "--driver-memory"}
_EXAMPLE = "env_vars: {NCCL_DEBUG: INFO}"


def _opened(path: str) -> io.StringIO:
    return io.StringIO(decoded(Path(path).expanduser().read_bytes, one_line(path)), newline=None)
