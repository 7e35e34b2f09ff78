"""The token of a Ray cluster, where the user keeps it."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from cockpit.model.error import UsageError
from cockpit.model.secret import sendable


def ray_token() -> str:
    """Read Ray's token, from COCKPIT_RAY_TOKEN or Ray's own locations; empty without one.

    Ray's are RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH and ~/.ray/auth_token (Ray 2.52, `ray
    get-auth-token`). Raises UsageError for a file that cannot be read and for a token that cannot
    be sent; the error does not quote the token.
    """
    for variable in ("COCKPIT_RAY_TOKEN", "RAY_AUTH_TOKEN"):
        if token := sendable(os.environ.get(variable, ""), variable):
            return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        return sendable(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError as error:
        if not named:
            return ""
        raise UsageError(
            f"There is no file {named}.",
            "RAY_AUTH_TOKEN_PATH names it as the file with Ray's token.",
            "Fix the variable, or set COCKPIT_RAY_TOKEN to the token.",
        ) from error
    except UnicodeDecodeError as error:  # its text quotes the bytes that it could not decode
        raise UsageError(f"Ray's token in {path} cannot be read.", "It is not text.") from error
    except OSError as error:
        raise UsageError(f"Ray's token in {path} cannot be read.", str(error)) from error


def dashboard_address(url: str, token: str) -> tuple[str, dict[str, str]]:
    """A dashboard's URL without user and password, and the headers that carry them and the token.

    With both, the proxy in front of the dashboard gets `Authorization` and Ray gets
    `X-Ray-Authorization` (Ray 2.52), so that no error which shows the URL shows a password.
    Raises UsageError when `url` is not a URL.
    """
    try:
        parts = urlsplit(url)
        name, password = unquote(parts.username or ""), unquote(parts.password or "")
    except ValueError as error:
        raise UsageError("The dashboard's address is not a URL.") from error
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if name or password:
        pair = base64.b64encode(f"{name}:{password}".encode()).decode()
        headers = {f"X-Ray-{key}": value for key, value in headers.items()}
        headers["Authorization"] = f"Basic {pair}"
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return urlunsplit(plain).rstrip("/"), headers
