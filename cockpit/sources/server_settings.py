"""A configuration table with the address and credentials of a server."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from cockpit.model.error import UsageError
from cockpit.model.secret import sendable, without_credentials
from cockpit.model.text import one_line

_TYPE_NAMES = {str: "a text", bool: "true or false", dict: "a table", list: "a list"}


@dataclass(frozen=True, slots=True)
class Address:
    """A URL without what is secret in it; `repr` leaves the rest out."""

    url: str = ""
    """Without a trailing slash, a query, user or password."""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Address and credentials of a server; `repr` leaves out what is secret."""

    url: str
    """Without a trailing slash, user or password; empty without a server."""
    token: str = field(default="", repr=False)
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str = ""
    cert_file: str = ""
    """The client's certificate; with its key, if there is no `key_file`."""
    key_file: str = ""
    verify: bool = True
    set_by: str = ""
    """`configuration`, `environment` or `dashboard`."""
    why_not: str = ""
    """With an empty url, where more is known than that none is configured."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Credentials that no error may quote."""
        return (self.token, self.password, *self.headers.values())


KEYS = {
    "token_file": str,
    "token_env": str,
    "username": str,
    "password_file": str,
    "password_env": str,
    "ca_file": str,
    "cert_file": str,
    "verify": bool,
}
"""The keys of every such table, with their types."""


class Table:
    """`raw` is the configuration table `name`, which may be missing.

    Every method raises UsageError for an invalid or missing value.
    """

    def __init__(
        self,
        name: str,
        raw: Mapping[str, Any],
        types: Mapping[str, type],
        environ: Mapping[str, str],
    ) -> None:
        self.name = name
        self._raw, self._environ = raw, environ
        for key, value in raw.items():
            if key not in types:
                raise self.wrong(f"there is no {key!r}", f"known are: {', '.join(types)}")
            if not isinstance(value, types[key]):
                raise self.wrong(f"{key} is not {_TYPE_NAMES[types[key]]}")

    def text(self, key: str) -> str:
        return str(self._raw.get(key, ""))

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._raw.get(key, default))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        found = self._raw.get(key, [])
        if not all(isinstance(value, str) for value in found):
            raise self.wrong(f"{key} are not texts")
        return tuple(found)

    def texts_by_name(self, key: str) -> dict[str, str]:
        found = dict(self._raw.get(key, {}))
        if not all(isinstance(value, str) for value in found.values()):
            raise self.wrong(f"{key} are not texts")
        return found

    def path(self, key: str) -> str:
        """With `~` replaced; empty when none is given."""
        path = self.text(key)
        return str(Path(path).expanduser()) if path else ""

    def secret(self, key: str) -> str:
        """Read from the variable that `KEY_env` names, else from the file of `KEY_file`.

        Raises UsageError, without the value, for one that cannot be sent in a header.
        """
        if variable := self.text(f"{key}_env"):
            if variable not in self._environ:
                raise self.wrong(f"{key}_env names a variable that is not set", variable)
            return sendable(self._environ[variable], f"{variable}, named by [{self.name}]")
        if path := self.path(f"{key}_file"):
            try:
                return sendable(Path(path).read_text(), f"{path}, named by [{self.name}]")
            except UnicodeDecodeError as error:  # its text quotes the bytes
                raise self.wrong(f"{key}_file cannot be read", f"{path} is not text") from error
            except OSError as error:
                raise self.wrong(f"{key}_file cannot be read", f"{path}: {error}") from error
        return ""

    def address(self, url: str, example: str) -> Address:
        """Parse `url`; the default scheme is http."""
        if not url:
            return Address()
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise self.wrong("the address is not one", without_credentials(str(error))) from error
        if parts.scheme not in ("http", "https") or not host:
            raise self.wrong("the address is not one", f"it looks like {example}")
        netloc = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        plain = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
        return Address(plain, unquote(parts.username or ""), unquote(parts.password or ""))

    def server(
        self,
        url: str,
        set_by: str,
        example: str,
        variables: Mapping[str, str],
    ) -> dict[str, Any]:
        """The fields of ServerSettings but `headers` and `verify`.

        `variables`: by field, the variable that is its default.
        """
        address = self.address(url, example)

        def default(name: str) -> str:
            return self._environ.get(variables.get(name, ""), "")

        return {
            "url": address.url,
            "token": self.secret("token") or sendable(default("token"), variables.get("token", "")),
            "username": self.text("username") or address.username or default("username"),
            "password": self.secret("password") or address.password or default("password"),
            "ca_file": self.path("ca_file") or default("ca_file"),
            "cert_file": self.path("cert_file") or default("cert_file"),
            "key_file": self.path("key_file"),
            "set_by": set_by if address.url else "",
        }

    def wrong(self, what: str, why: str = "") -> UsageError:
        return UsageError(
            f"[{self.name}] in the configuration: {what}.",
            one_line(why),
            "cockpit config edit opens it.",
        )


def is_loopback(url: str) -> bool:
    """A loopback address must not be sent to the proxy of a bastion."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
