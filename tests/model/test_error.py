"""The reason of a failed connection, under the errors that wrap it."""

from __future__ import annotations

from errno import ECONNREFUSED

import pytest

from cockpit.model.error import CockpitError, reason_of


def wrapped(inner: BaseException) -> OSError:
    """As anyio raises it, with the socket's error as the cause."""
    outer = OSError("All connection attempts failed")
    outer.__cause__ = inner
    return outer


REFUSED = ConnectionRefusedError(ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (wrapped(REFUSED), "Connection refused"),
        (
            wrapped(ExceptionGroup("two addresses", [REFUSED, OSError("other")])),
            "Connection refused",
        ),
        (wrapped(OSError("no such host")), "no such host"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_reason_is_that_of_the_innermost_error(error: BaseException, reason: str) -> None:
    assert reason_of(error) == reason


def test_what_and_why_are_two_sentences_on_one_line() -> None:
    error = CockpitError("the Ray dashboard is not ready", "HTTP 503\n")
    assert error.what_and_why == "the Ray dashboard is not ready. HTTP 503."
    assert CockpitError("It is full.").what_and_why == "It is full."
