"""Who we are to one API server: TLS, proxy, and headers that stay fresh."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cockpit.backends.kuberay.api.auth_plugin import Login, ask_plugin
from cockpit.backends.kuberay.api.auth_provider import ask_provider
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.api.proxy import proxy_for
from cockpit.model.error import UsageError
from cockpit.model.secret import sendable, without_credentials
from cockpit.model.text import one_line

TOKEN_FILE_S = 60.0
"""How long a token read from a file is used: kubelets rotate them well before they expire."""
EXPIRY_MARGIN_S = 30.0
FRESH_S = 5.0
"""A credential that is newer than this is kept after a refusal: the previous one was refused. It is
kept also if it has expired or is about to."""


class Credentials:
    """Of one context. Secrets stay in here: `repr` shows the context's name only."""

    def __init__(self, context: KubeContext) -> None:
        if not context.server:
            raise UsageError(
                f"The context {one_line(context.name)!r} has no API server.",
                "Its cluster is not in the kubeconfig, or has no `server`.",
            )
        if not _is_address(context.server):
            raise UsageError(
                f"The API server's address in context {one_line(context.name)!r} is not a URL.",
                one_line(without_credentials(context.server)),
                "Fix `server` in the kubeconfig, for example: https://host:6443",
            )
        self.context = context
        self.server = context.server
        self._login: Login | None = None
        self._token_read_s = float("-inf")
        self._token = ""
        self._tls: ssl.SSLContext | None = None
        self._lock: asyncio.Lock | None = None
        self._logged_in_s = float("-inf")

    def __repr__(self) -> str:
        return f"Credentials({self.context.name!r})"

    @property
    def needs_plugin(self) -> bool:
        return "exec" in self.context.credential or "auth-provider" in self.context.credential

    @property
    def server_name(self) -> str:
        """For TLS, when it is not the name in the server's URL."""
        return str(self.context.cluster.get("tls-server-name") or "")

    @property
    def proxy(self) -> str:
        """The kubeconfig's own, or that of the environment unless NO_PROXY excepts the server."""
        if named := str(self.context.cluster.get("proxy-url") or ""):
            return named
        return proxy_for(self.server)

    async def headers(self) -> dict[str, str]:
        """Return the current headers; NotAllowedError when a plugin returns none.

        UsageError, without the value, for one that cannot be sent in a header.
        """
        where = f"context {one_line(self.context.name)}"
        made = await self._headers()
        return {name: sendable(value, f"{where} ({name})") for name, value in made.items()}

    def without_credentials(self, text: str) -> str:
        """The message of a library or a server, without the credentials that were sent."""
        who, login = self.context.credential, self._login or Login()
        secrets = (who.get("token"), who.get("password"), self._token, login.token)
        return without_credentials(text, [str(value).strip() for value in secrets if value])

    async def _headers(self) -> dict[str, str]:
        who = self.context.credential
        headers = _impersonation(self.context)
        if token := str(who.get("token") or "").strip():
            return headers | _bearer(token)
        if path := str(who.get("tokenFile") or ""):
            return headers | _bearer(self._token_of(Path(path)))
        if self.needs_plugin:
            login = await self._log_in()
            return headers | (_bearer(login.token) if login.token else {})
        if name := str(who.get("username") or ""):
            pair = base64.b64encode(f"{name}:{who.get('password') or ''}".encode()).decode()
            return headers | {"Authorization": f"Basic {pair}"}
        return headers

    async def tls(self) -> ssl.SSLContext | None:
        """None for a server without TLS. UsageError for certificates that cannot be read."""
        if not self.server.startswith("https:"):
            return None
        if self._tls is None:
            login = await self._log_in() if self.needs_plugin else Login()
            self._tls = self._make_tls(login)
        return self._tls

    def forget(self) -> None:
        """Called after a refusal: the next `headers` and `tls` are loaded again.

        Several requests may be refused at once; a credential that one of them has just renewed is
        kept.
        """
        self._token_read_s = float("-inf")
        if time.monotonic() - self._logged_in_s < FRESH_S:
            return
        if self._login is not None and self._login.certificate:
            self._tls = None
        self._login = None
        if "client-certificate" in self.context.credential:
            self._tls = None  # the file may have been renewed

    @property
    def can_change(self) -> bool:
        """Whether another attempt may return something else."""
        files = ("tokenFile", "client-certificate")
        return self.needs_plugin or any(name in self.context.credential for name in files)

    def _token_of(self, path: Path) -> str:
        if time.monotonic() - self._token_read_s > TOKEN_FILE_S:
            try:
                self._token = path.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                # A decoding error quotes the bytes that it could not decode.
                why = str(error) if isinstance(error, OSError) else f"{path} is not text."
                raise UsageError(
                    f"The token file of context {one_line(self.context.name)} cannot be read.",
                    one_line(why),
                ) from error
            self._token_read_s = time.monotonic()
        return self._token

    async def _log_in(self) -> Login:
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            # One that is new is used even so: this host's clock may be fast.
            is_fresh = time.monotonic() - self._logged_in_s < FRESH_S
            if self._login is None or (
                not is_fresh and time.time() > self._login.expires_s - EXPIRY_MARGIN_S
            ):
                if self._login is not None and self._login.certificate:
                    self._tls = None
                ask = ask_plugin if "exec" in self.context.credential else ask_provider
                self._login = await ask(self.context)
                self._logged_in_s = time.monotonic()
            return self._login

    def _make_tls(self, login: Login) -> ssl.SSLContext:
        cluster, who = self.context.cluster, self.context.credential
        try:
            if data := cluster.get("certificate-authority-data"):
                context = ssl.create_default_context(cadata=_decoded(data).decode())
            elif path := cluster.get("certificate-authority"):
                context = ssl.create_default_context(cafile=str(path))
            else:
                context = ssl.create_default_context()  # the system's, which cost 10 ms to load
            if cluster.get("insecure-skip-tls-verify"):
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            # Authorities of test and on-premises clusters often lack what newer Pythons insist on.
            context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
            certificate, key = _client_pair(who, login)
            if certificate and key:
                _load_pair(context, certificate, key)
        except (OSError, ValueError, ssl.SSLError) as error:
            raise UsageError(
                f"The certificates of context {one_line(self.context.name)} cannot be used.",
                one_line(f"{type(error).__name__}: {error}"),
                "Fix the kubeconfig; see: cockpit doctor",
            ) from error
        context.set_alpn_protocols(["http/1.1"])
        return context


def _is_address(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _client_pair(who: Mapping[str, Any], login: Login) -> tuple[bytes, bytes]:
    def part(name: str) -> bytes:
        if data := who.get(f"client-{name}-data"):
            return _decoded(data)
        path = who.get(f"client-{name}")
        return Path(str(path)).read_bytes() if path else b""

    if login.certificate:
        return login.certificate.encode(), login.key.encode()
    return part("certificate"), part("key")


def _no_password() -> str:
    """Called for an encrypted key's password; otherwise OpenSSL would prompt on the terminal."""
    raise ValueError("the client's key is encrypted, and its password cannot be asked for")


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Python reads certificates from files only: this one is in memory, and has no name."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("client", os.MFD_CLOEXEC)
        with os.fdopen(fd, "wb") as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{fd}", password=_no_password)
        return
    import tempfile  # not on Linux: it takes 4 ms

    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name, password=_no_password)


def _impersonation(context: KubeContext) -> dict[str, str]:
    """The kubeconfig's `as`, `as-uid` and one of `as-groups`: headers are single here."""
    who = context.credential
    groups = who.get("as-groups") or []
    if len(groups) > 1 or who.get("as-user-extra"):
        raise UsageError(
            f"The user of context {one_line(context.name)} cannot be impersonated.",
            "Its entry has several as-groups, or as-user-extra, which cockpit does not send.",
            "Use a kubeconfig with one group at most.",
        )
    fields = {
        "Impersonate-User": str(who.get("as") or ""),
        "Impersonate-Uid": str(who.get("as-uid") or ""),
        "Impersonate-Group": str(groups[0]) if groups else "",
    }
    return {name: value for name, value in fields.items() if value}


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _decoded(data: Any) -> bytes:
    """Strict: what is broken must not count as empty, which means the system's authorities."""
    decoded = base64.b64decode("".join(str(data).split()), validate=True)
    if not decoded:
        raise ValueError("there is nothing in it")
    return decoded
