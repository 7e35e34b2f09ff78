"""The user's configuration: `$XDG_CONFIG_HOME/cockpit/config.toml`."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.config import paths
from cockpit.config.cluster_flags import FLAGS, Place
from cockpit.model.cluster import ClusterPattern
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

TEMPLATE = """\
# Cockpit's configuration. Flags override the environment (COCKPIT_*), which overrides this file.

# profile = "prod"        # the profile to take when --profile names none
# theme = "cockpit-light" # see: cockpit themes

# [profiles.prod]
# context = "prod"        # of the kubeconfig
# namespace = "ml"
# cluster = "trainer"
# read_only = true
# protected = true        # a destructive change asks for the cluster's name
#
# [profiles.bench]
# address = "http://head:8265"
#
# [profiles.here]
# local = true

# [drills]
# max_share = 0.5         # at most this share of a worker group is affected at once
# max_pods = 4

# [guard]                 # of cockpit guard; [profiles.NAME.guard] overrides it
# hang = "observe"        # or capture, restart, replace
# repeated_failure = "observe" # or capture, replace, cordon, stop

# [recorder]
# enabled = true          # record every run that the UI shows
# max_age_days = 90
# max_bytes = 10000000000 # of all recordings together; the oldest are deleted first

# [context_themes]        # by the context of the cluster
# "prod-*" = "high-contrast"

# [keys]                  # of the views, by the names of cockpit keys
# kill = "f9"
# view_runs = "ctrl+r"

# [prometheus]
# url = "http://prometheus:9090"

# [mlflow]
# uri = "http://mlflow:5000"

# [grafana]
# url = "https://grafana:3000" # for cockpit open grafana

# [history_server]
# url = "http://127.0.0.1:30080" # of KubeRay, for cockpit why --history

# [cost]
# currency = "EUR"
# budget = 500            # of one run: see docs/diagnosis.md
# node_hour = { "p4d.24xlarge" = 32.77 } # price of a node for an hour, by its type
# pod_hour = { gpu = 32.77 } # price of a pod for an hour, by worker group; it is used first

# [alerts]
# straggler_percent = 30  # see docs/diagnosis.md for every threshold
#
# [[hooks]]
# command = ["notify-send", "cockpit"] # the alert is JSON on its standard input
"""

TABLES = (
    "recorder",
    "alerts",
    "prometheus",
    "mlflow",
    "grafana",
    "history_server",
    "cost",
    "drills",
    "guard",
    "keys",
    "context_themes",
)
"""Those whose settings the part that they are of reads itself."""
_TOP = ("profile", "theme", "read_only", "protected", "profiles", "hooks", *TABLES)
_OWN = (*FLAGS, "theme", "read_only", "protected", "guard")
_PATTERN = ("context", "namespace", "cluster")


class Profile(Struct, frozen=True):
    """A named place and the settings for it."""

    name: str = ""
    place: Place = field(default_factory=Place)
    theme: str = ""
    read_only: bool | None = None
    protected: tuple[ClusterPattern, ...] = ()
    """The clusters that all profiles together protect, whichever profile is in use."""
    protected_in_use: tuple[ClusterPattern, ...] = ()
    """With `protected = true`: further protected contexts while this profile is in use."""
    guard: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the guard that are set here."""


class Configuration(Struct, frozen=True):
    path: Path
    profile: str = ""
    """The name of the profile that is taken when none is given."""
    theme: str = ""
    read_only: bool | None = None
    protected: tuple[ClusterPattern, ...] = ()
    """Those of all profiles too."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The entries of TABLES that the file contains, unparsed."""
    hooks: Sequence[Any] = ()
    """Receivers of alerts: the tables [[hooks]], unparsed."""

    def named(self, name: str) -> Profile:
        """The profile of that name, with what is set for all of them. Raises UsageError."""
        wanted = name or self.profile
        if wanted and wanted not in self.profiles:
            raise UsageError(
                f"There is no profile {wanted!r}.",
                f"{self.path} has: {', '.join(self.profiles) or 'no profile'}.",
                "cockpit config edit opens it.",
            )
        own = self.profiles[wanted] if wanted else Profile()
        return replace(
            own,
            theme=own.theme or self.theme,
            read_only=self.read_only if own.read_only is None else own.read_only,
            guard={**self.tables.get("guard", {}), **own.guard},
        )


def path() -> Path:
    return paths.config_dir() / "config.toml"


def read() -> Configuration:
    """Return the configuration, empty without a file. Raise UsageError for an invalid file."""
    where = path()
    text = text_of(where)
    if text is None:
        return Configuration(where)
    import tomllib

    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(where, f"It is not TOML: {error}.") from error
    return parsed(where, raw)


def text_of(where: Path) -> str | None:
    """None without a file. Raises UsageError for other than UTF-8."""
    try:
        return where.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise _wrong(where, f"It is not UTF-8: {error}.") from error


def parsed(where: Path, raw: Mapping[str, Any]) -> Configuration:
    """From the content of the file `where`. Raises UsageError."""
    _require_known(where, raw, _TOP, "")
    profiles = raw.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(p, dict) for p in profiles.values()):
        raise _wrong(where, "profiles must be tables: [profiles.NAME].")
    by_name = {name: _profile(where, name, own) for name, own in profiles.items()}
    return Configuration(
        where,
        profile=_text(where, raw, "profile"),
        theme=_text(where, raw, "theme"),
        read_only=_truth(where, raw, "read_only"),
        protected=(
            *_protected(where, raw, "", Place()),
            *(pattern for profile in by_name.values() for pattern in profile.protected),
        ),
        profiles=by_name,
        tables={name: _table(where, raw, name) for name in TABLES if name in raw},
        hooks=_hooks(where, raw),
    )


def _hooks(where: Path, raw: Mapping[str, Any]) -> Sequence[Any]:
    hooks = raw.get("hooks", [])
    if not isinstance(hooks, list) or not all(isinstance(one, dict) for one in hooks):
        raise _wrong(where, "hooks must be tables: [[hooks]].")
    return hooks


def _table(where: Path, raw: Mapping[str, Any], name: str, section: str = "") -> Mapping[str, Any]:
    table = raw[name]
    if not isinstance(table, dict):
        raise _wrong(where, f"{section}{name} must be a table: [{section}{name}].")
    return table


def _profile(where: Path, name: str, raw: Mapping[str, Any]) -> Profile:
    section = f"profiles.{name}."
    _require_known(where, raw, _OWN, section)
    texts = {key: _text(where, raw, key, section) for key in FLAGS if key != "local"}
    place = Place(local=bool(_truth(where, raw, "local", section)), **texts)
    place.require_one_kind(f"The settings of profile {name!r}")
    own = raw.get("protected") is True
    # A profile that names no cluster, such as a kubeconfig alone, protects what it is used for.
    names_none = _exactly(place) in (ClusterPattern(), ClusterPattern(backend="kuberay"))
    return Profile(
        name,
        place,
        theme=_text(where, raw, "theme", section),
        read_only=_truth(where, raw, "read_only", section),
        protected=() if own and names_none else _protected(where, raw, section, place),
        # A flag may name another namespace or cluster of the profile's context.
        protected_in_use=(replace(_exactly(place), namespace="*", cluster="*"),) if own else (),
        guard=_table(where, raw, "guard", section) if "guard" in raw else {},
    )


def _protected(
    where: Path, raw: Mapping[str, Any], section: str, place: Place
) -> tuple[ClusterPattern, ...]:
    """True, a table of patterns or a list of such; what a table leaves out is as `place` has it."""
    value = raw.get("protected", False)
    if isinstance(value, bool):
        return (_exactly(place),) if value else ()
    tables = value if isinstance(value, list) else [value]
    for table in tables:
        if not (isinstance(table, dict) and all(isinstance(one, str) for one in table.values())):
            example = 'protected = { context = "prod-*" }'
            raise _wrong(where, f"{section}protected must be true, false or patterns: {example}.")
        _require_known(where, table, _PATTERN, f"{section}protected.")
        if not table:
            raise _wrong(where, f"{section}protected names no pattern: {', '.join(_PATTERN)}.")
    return tuple(replace(_exactly(place), **table) for table in tables)


def _exactly(place: Place) -> ClusterPattern:
    """The pattern of the clusters that the place describes."""
    cluster = place.cluster
    if place.address:
        cluster = urlsplit(place.address).netloc.rpartition("@")[2]

    def only(name: str) -> str:
        return glob.escape(name) or "*"

    return ClusterPattern(
        only(place.context), only(place.namespace), only(cluster), only(place.kind)
    )


def _require_known(
    where: Path, raw: Mapping[str, Any], allowed: tuple[str, ...], section: str
) -> None:
    for key in raw:
        if key not in allowed:
            raise _wrong(
                where,
                f"{section}{one_line(key)} is not a setting. Available: {', '.join(allowed)}.",
            )


def _text(where: Path, raw: Mapping[str, Any], key: str, section: str = "") -> str:
    value = raw.get(key, "")
    if not isinstance(value, str):
        raise _wrong(where, f'{section}{key} must be a string: {key} = "…".')
    return value


def _truth(where: Path, raw: Mapping[str, Any], key: str, section: str = "") -> bool | None:
    value = raw.get(key)
    if value is not None and not isinstance(value, bool):
        raise _wrong(where, f"{section}{key} must be true or false.")
    return value


def _wrong(where: Path, why: str) -> UsageError:
    return UsageError(f"{where} is not understood.", why, "cockpit config edit opens it.")
