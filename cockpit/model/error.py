"""Errors with what failed, why, and what to do."""

from __future__ import annotations

import os
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every verb."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_ALLOWED = 4
    INTERRUPTED = 130


class CockpitError(Exception):
    """An error in up to three sentences: what failed, why, what to do next.

    The command line prints them as at most three lines and exits with `code`; the UI shows them as
    a message. `why` and `todo` may be empty.
    """

    code = ExitCode.FAILED

    def __init__(self, what: str, why: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what, self.why, self.todo = what, why, todo

    def __str__(self) -> str:
        lines = [ended(line) for line in map(_joined, (self.what, self.why)) if line]
        return "\n".join([*lines, _joined(self.todo)] if self.todo else lines)

    @property
    def what_and_why(self) -> str:
        """On one line, each with a full stop."""
        return " ".join(ended(line) for line in map(_joined, (self.what, self.why)) if line)


def _joined(text: str) -> str:
    """Return it as one line: a name that contains line ends must not add lines to an error."""
    return " ".join(part.strip() for part in text.splitlines())


def ended(line: str) -> str:
    """Return it with a full stop: a library's message may share a line with the next sentence."""
    return line if line.endswith((".", ":", "!", "?", "…")) else f"{line}."


class UsageError(CockpitError):
    code = ExitCode.USAGE


class ReplacedError(CockpitError):
    """The object that a plan showed was deleted, and another one has its name."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"{kind} {name} was replaced since the plan was shown.",
            "Another object has its name now; it was not changed.",
            "Ask again to see it as it is now.",
        )
        self.kind, self.name = kind, name


class ChangedError(CockpitError):
    """A worker group does not have the number of replicas that a change expected."""

    def __init__(self, group: str, found: int, expected: int) -> None:
        super().__init__(
            f"Group {group} has {found} replicas now, not {expected}.",
            "It was changed since; it was left as it is.",
            "See it as it is now: cockpit groups",
        )
        self.group, self.found, self.expected = group, found, expected


class LeaseHeldError(CockpitError):
    """Another drill holds the cluster's lease, or did not release it."""

    def __init__(
        self, what: str, why: str, todo: str, *, renewal: str, ttl_s: float, current: bool
    ) -> None:
        super().__init__(what, why, todo)
        self.renewal = renewal
        """Differs after each renewal: a live holder renews within `ttl_s`."""
        self.ttl_s = ttl_s
        self.current = current
        """By this host's clock it has not expired, and does not begin in the future."""


class UnreachableError(CockpitError):
    """A required service does not respond, or does not exist."""

    code = ExitCode.UNREACHABLE


class NotAllowedError(CockpitError):
    code = ExitCode.NOT_ALLOWED


def reason_of(error: BaseException) -> str:
    """The innermost reason of a failed connection: httpx's error wraps httpcore's, which wraps the
    socket's. Of several attempts, the reason of the first one.
    """
    name = type(error).__name__
    while True:
        several = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        inner = several[0] if several else error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio's text has the address alone
    return str(error) or name
