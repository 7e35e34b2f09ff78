"""Errors of a Prometheus as cockpit's errors, without a credential in them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line
from cockpit.sources.prometheus.settings import PrometheusSettings
from cockpit.sources.ray.http import AnswerError


def credentials(settings: PrometheusSettings) -> tuple[str, ...]:
    """Secrets that no error may quote."""
    return (settings.token, settings.password, *settings.headers.values())


def refused(where: str, status: int, body: bytes, secrets: Iterable[str] = ()) -> CockpitError:
    """The error for an answer that is not a success. `body` is Prometheus's JSON or a page.

    `secrets`: credentials that it must not quote.
    """
    why = f"HTTP {status}"
    with suppress(ValueError, TypeError, KeyError):
        why += f": {one_line(without_credentials(str(loads(body)['error']), secrets))}"
    if status == 401:
        todo = "give a token or a password under [prometheus] in the configuration"
        return NotAllowedError(f"{where} wants credentials", why, todo)
    if status == 403:
        return NotAllowedError(f"{where} refused the credentials", why)
    if status in (429, 502, 503, 504):
        return UnreachableError(f"{where} is not ready", why, "it is tried again")
    return AnswerError(f"{where} failed", why, status=status)
