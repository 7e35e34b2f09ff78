"""Tokens of a kubeconfig's `auth-provider`, the kind of login before exec plugins.

An OpenID Connect token that is valid is used as it is. To renew one, the `kubernetes` package is
needed, which is not installed with cockpit: it takes 126 MB, more than everything else together.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping
from typing import Any

from cockpit.backends.kuberay.api.auth_plugin import Login
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import NotAllowedError
from cockpit.model.secret import sendable, without_credentials
from cockpit.model.text import one_line

RENEWED_S = 300.0
"""How long a renewed token is cached: the package does not return its expiry."""
MARGIN_S = 40.0
"""A token that expires within this time is renewed; as `kubernetes.config.kube_config` does it."""


async def ask_provider(context: KubeContext) -> Login:
    """Return the token of the kubeconfig, or a renewed one.

    Raises NotAllowedError if there is none, and if it must be renewed without the package.
    """
    if (valid := _unexpired(context)) is not None:
        return valid
    bearer = await asyncio.to_thread(_renewed, context)
    token = bearer.removeprefix("Bearer ").strip()
    if not token:
        raise NotAllowedError(
            f"The auth-provider of context {one_line(context.name)} returned no token.",
            "Its type is unknown, or it contains no token.",
            "Log in again with your provider's own tool.",
        )
    return Login(token=token, expires_s=time.time() + RENEWED_S)


def _unexpired(context: KubeContext) -> Login | None:
    """The id-token of an `oidc` entry while it is valid, by the `exp` in it (RFC 7519)."""
    provider = context.credential["auth-provider"]
    if not isinstance(provider, dict) or provider.get("name") != "oidc":
        return None
    config = provider.get("config")
    token = str(config.get("id-token") or "") if isinstance(config, dict) else ""
    try:
        part = token.split(".")[1]
        expires_s = float(loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["exp"])
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    if not expires_s > time.time() + MARGIN_S:  # also NaN
        return None
    where = f"the id-token of context {one_line(context.name)}"
    return Login(token=sendable(token, where), expires_s=expires_s)


def _renewed(context: KubeContext) -> str:
    try:
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException
        from kubernetes.config.kube_config import KubeConfigLoader
    except ImportError as error:
        raise NotAllowedError(
            f"The token of context {one_line(context.name)} has expired.",
            "To renew an auth-provider's token, cockpit needs the package kubernetes.",
            "Log in with your provider's own tool, or: pip install 'cockpit[oidc]'",
        ) from error

    document: Mapping[str, Any] = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": context.server}}],
        "users": [{"name": "it", "user": dict(context.credential)}],
    }
    configuration = Configuration()
    loader: Any = KubeConfigLoader  # it ships no types
    try:
        loader(document).load_and_set(configuration)
    except (ConfigException, OSError, ValueError, KeyError) as error:
        raise NotAllowedError(
            f"The auth-provider of context {one_line(context.name)} returned no token.",
            one_line(without_credentials(f"{type(error).__name__}: {error}")),
            "Log in again with your provider's own tool.",
        ) from error
    # Older versions of the package use another key.
    keys: Mapping[str, str] = configuration.api_key or {}
    return str(keys.get("BearerToken") or keys.get("authorization") or "")
