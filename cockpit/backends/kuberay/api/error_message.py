"""Explain an API server's error, or a missing response, to the user."""

from __future__ import annotations

from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line


class KubeError(CockpitError):
    """An error of the API server: HTTP's `status`, Kubernetes' `reason` (`Conflict`, `Gone`, …)."""

    def __init__(
        self, what: str, why: str = "", todo: str = "", *, status: int, reason: str = ""
    ) -> None:
        super().__init__(what, why, todo)
        self.status, self.reason = status, reason


class ForbiddenError(NotAllowedError):
    """401 or 403 (`status`)."""

    def __init__(self, what: str, why: str = "", todo: str = "", *, status: int) -> None:
        super().__init__(what, why, todo)
        self.status = status


class NoDataError(UnreachableError):
    """Connected, but no data arrived within the timeout."""


def refusal(
    credentials: Credentials, method: str, path: str, status: int, body: bytes
) -> CockpitError:
    """The error for an answer that is not a success."""
    message, reason = (credentials.without_credentials(part) for part in _status(body))
    context = one_line(credentials.context.name)
    if status == 401:
        return ForbiddenError(
            f"The API server of context {context} rejected your credentials.",
            "" if message == "Unauthorized" else message,
            "They are missing, wrong or expired: log in to the cluster again.",
            status=status,
        )
    if status == 403:
        return ForbiddenError(
            f"You do not have this permission in context {context}.",
            message,
            "Ask for it; what each verb needs: cockpit manifests show kubernetes/base/rbac.yaml",
            status=status,
        )
    what = message or f"{method} {one_line(path)} failed with HTTP {status}"
    return KubeError(what, f"HTTP {status} {reason}".strip(), status=status, reason=reason)


def unreachable(credentials: Credentials, why: str) -> UnreachableError:
    """The error for a connection that failed or broke; `why` as the library reports it."""
    context = one_line(credentials.context.name)
    why = one_line(credentials.without_credentials(why))
    todo = "Check the network, the VPN or proxy, and the server's address in the kubeconfig."
    if "CERTIFICATE_VERIFY_FAILED" in why:
        todo = "Its certificate is not of certificate-authority: fix the kubeconfig or the proxy."
    elif "certificate" in why.lower():
        todo = "The client certificate may have expired: log in to the cluster again."
    return UnreachableError(
        f"The API server of context {context} cannot be reached.",
        f"{one_line(without_credentials(credentials.server))}: {why}",
        todo,
    )


def not_kubernetes(path: str, why: str = "") -> KubeError:
    """The error for an answer that no API server gives; `why` without the answer's content."""
    return KubeError(
        f"{one_line(path)} did not answer as a Kubernetes API server does.",
        one_line(why),
        todo="Check the server's address in the kubeconfig.",
        status=200,
    )


def retry_after_s(method: str, status: int, header: str) -> float | None:
    """How long the server asks to wait before a retry; None if it does not.

    A request with 429 was not started. One with 503, or with 500 of an overloaded server, may have
    been: it is retried only when the server sets a time, and when it is idempotent.
    """
    if status != 429 and (status not in (500, 503) or not header or method != "GET"):
        return None
    try:
        return max(0.0, float(header or 1.0))
    except ValueError:
        return 1.0  # a date


def _status(body: bytes) -> tuple[str, str]:
    """Message and reason of a Kubernetes Status; of other text, its beginning."""
    try:
        answer = loads(body)
        return one_line(str(answer.get("message") or "")), one_line(str(answer.get("reason") or ""))
    except (ValueError, AttributeError):
        return one_line(body[:200].decode(errors="replace")), ""
