"""The settings of one command: flags override the environment, which overrides the profile.

The exception is read-only mode, which any of the three enables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from cockpit.config.cluster_flags import FLAGS, Place, settle
from cockpit.config.file import Configuration
from cockpit.model.cluster import ClusterPattern
from cockpit.model.decoding.boolean import boolean_variable

VARIABLES = {
    "local": "COCKPIT_LOCAL",
    "address": "COCKPIT_ADDRESS",
    "hosts": "COCKPIT_HOSTS",
    "context": "COCKPIT_CONTEXT",
    "namespace": "COCKPIT_NAMESPACE",
    "cluster": "COCKPIT_CLUSTER",
    "kubeconfig": "COCKPIT_KUBECONFIG",
    "dashboard_url": "COCKPIT_DASHBOARD_URL",
    "token_secret": "COCKPIT_TOKEN_SECRET",
}
PROFILE, THEME, READ_ONLY = "COCKPIT_PROFILE", "COCKPIT_THEME", "COCKPIT_READ_ONLY"


class Settings(Struct, frozen=True):
    where: Place
    theme: str = ""
    read_only: bool = False
    profile: str = ""
    protected: tuple[ClusterPattern, ...] = ()
    """Clusters on which a destructive change needs the cluster's name, typed."""
    set_by: Mapping[str, str] = field(default_factory=dict)
    """Of each setting that is given: `flag`, `environment` or `profile`."""


def settle_all(flags: Mapping[str, Any], configuration: Configuration) -> Settings:
    """`flags` holds only flags that were passed. Raises UsageError for contradictory settings."""
    environment = os.environ
    by_flag = Place(**{name: flags[name] for name in FLAGS if name in flags})
    by_flag.require_one_kind("The flags")
    local = boolean_variable(environment, VARIABLES["local"])
    by_environment = Place(
        local=bool(local),
        **{n: environment.get(VARIABLES[n], "") for n in FLAGS if n != "local"},
    )
    by_environment.require_one_kind("The variables COCKPIT_*, taken as flags,")
    profile = configuration.named(flags.get("profile") or environment.get(PROFILE, ""))
    # A namespace or name beside `local = true` is that of the local cluster.
    by_profile = Place() if local is False and profile.place.local else profile.place
    places = {"flag": by_flag, "environment": by_environment, "profile": by_profile}
    where = settle(places.values())
    set_by = {
        name: next(who for who, text in places.items() if getattr(text, name) == value)
        for name in FLAGS
        if (value := getattr(where, name))
    }
    read_only, set_by["read_only"] = _read_only(flags, profile.read_only)
    theme, set_by["theme"] = _first(
        flags.get("theme", ""), environment.get(THEME, ""), profile.theme
    )
    name, set_by["profile"] = _first(
        flags.get("profile", ""), environment.get(PROFILE, ""), configuration.profile
    )
    protected = configuration.protected
    if where.kind == profile.place.kind or not (where.kind and profile.place.kind):
        protected += profile.protected_in_use
    set_by = {k: who for k, who in set_by.items() if who}
    return Settings(where, theme, read_only, name, protected, set_by)


def _read_only(flags: Mapping[str, Any], profile: bool | None) -> tuple[bool, str]:
    """Whether any of flag, environment and profile sets it, and the first that does."""
    levels = {
        "flag": flags.get("read_only"),
        "environment": boolean_variable(os.environ, READ_ONLY),
        "profile": profile,
    }
    for wanted in (True, False):
        for who, value in levels.items():
            if value is wanted:
                return wanted, who
    return False, ""


def _first(flag: str, variable: str, profile: str) -> tuple[str, str]:
    for value, who in ((flag, "flag"), (variable, "environment"), (profile, "profile")):
        if value:
            return value, who
    return "", ""
