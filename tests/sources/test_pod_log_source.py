"""A pod's own output, across the restarts of its container and lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest

from cockpit.backends.pod_log import PodLogSource
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from cockpit.model.event import Event, LogLines, SourceHealth
from cockpit.sources.polling.backoff import Backoff

GONE = UsageError("There is no pod 'p'.")


def manifest(restarts: int, phase: str = "Running") -> str:
    """As safe_yaml writes it, the fields that are read."""
    return (
        f"metadata:\n  uid: 8d1b\nstatus:\n  phase: {phase}\n"
        f"  containerStatuses:\n  - name: ray\n    restartCount: {restarts}\n"
    )


class Answers:
    """A backend: for each reading of the log the manifest, the lines, and how they end."""

    def __init__(self, *answers: tuple[str, Sequence[str], CockpitError | None]) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[bool, bool]] = []

    async def manifest(self, kind: str, name: str) -> str:
        if not self._answers[0][0]:
            raise UsageError("There is no Kubernetes object to show.")
        return self._answers[0][0]

    async def logs(
        self, pod: str, *, follow: bool, lines: int, previous: bool
    ) -> AsyncIterator[str]:
        self.asked.append((follow, previous))
        _, found, error = self._answers.pop(0)
        for line in found:
            yield line
        if error is not None:
            raise error


async def told(answers: Answers, *, previous: bool = False) -> tuple[list[str], list[SourceHealth]]:
    """The lines, and the health after each change of it."""
    source = PodLogSource(
        cast(Any, answers), "p", previous=previous, clock=lambda: 1.0, backoff=Backoff(0.001, 0.002)
    )
    lines: list[str] = []
    health: list[SourceHealth] = []
    async with asyncio.timeout(10), aclosing(source.events()) as events:
        event: Event
        async for event in events:
            if isinstance(event, LogLines):
                lines += event.lines
            elif isinstance(event, SourceHealth) and (not health or health[-1].ok != event.ok):
                health.append(event)
    assert isinstance(event, SourceHealth)
    return lines, [*health, event]


async def test_log_is_read_again_after_a_restart_and_ends_with_the_pod() -> None:
    answers = Answers(
        (manifest(0), ["a", "b"], None),
        (manifest(0), ["a", "b"], None),  # not restarted yet
        (manifest(1), ["a", "c"], None),
        (manifest(1, "Succeeded"), ["a", "c", "d"], None),
    )
    lines, health = await told(answers)
    assert lines == ["a", "b", "a", "c", "d"]
    assert (health[-1].ok, health[-1].absent) == (True, True)


async def test_log_is_read_again_after_a_lost_connection_and_no_line_comes_twice() -> None:
    lost = UnreachableError("the connection was lost")
    answers = Answers(
        (manifest(0), ["a", "a", "b"], lost),
        (manifest(0), ["a", "a", "b", "b"], lost),
        (manifest(0, "Failed"), ["a", "b", "b", "c"], None),
    )
    lines, health = await told(answers)
    assert lines == ["a", "a", "b", "b", "c"]
    assert [one.ok for one in health[:4]] == [True, False, True, False]
    assert health[1].retry_at_s is not None
    assert health[-1].absent


async def test_container_that_has_not_begun_is_waited_for() -> None:
    waits = UsageError("Pod p has no log.", "container is waiting to start")
    answers = Answers((manifest(0), [], waits), (manifest(0, "Succeeded"), ["a"], None))
    assert (await told(answers))[0] == ["a"]


async def test_log_ends_when_the_pod_is_gone() -> None:
    lines, health = await told(Answers(("", ["a"], None), ("", [], GONE)))
    assert lines == ["a"]
    assert [(one.ok, one.absent) for one in health] == [(True, False), (True, True)]


@pytest.mark.parametrize("error", [GONE, NotAllowedError("You may not read it.")])
async def test_log_that_cannot_be_read_reports_why_and_is_not_asked_for_again(
    error: CockpitError,
) -> None:
    answers = Answers(("", [], error))
    _, health = await told(answers)
    assert health[-1].error == str(error)
    assert len(answers.asked) == 1


async def test_log_before_a_restart_is_read_once() -> None:
    answers = Answers((manifest(1), ["a", "a"], None))
    lines, health = await told(answers, previous=True)
    assert (lines, answers.asked) == (["a", "a"], [(False, True)])
    assert health[-1].absent
