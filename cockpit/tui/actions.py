"""What the screens need from outside: a connection to look at, and the changes they may ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:  # the first paint does not wait for these
    from cockpit.backends.protocol import Scaled
    from cockpit.drills.kill import KillPlan
    from cockpit.model.drill import Drill
    from cockpit.session import Session, Source


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a bundled job, as text."""

    name: str
    default: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class BundledJob:
    """A job that cockpit brings along and can launch by name."""

    name: str
    about: str
    settings: tuple[Setting, ...] = ()


class Actions(Protocol):
    """Every change that the screens can ask for. All raise the errors of `cockpit.model.error`.

    The coroutines run on the session's loop. What they did comes back as events, except for
    `kill`, whose drill the screen itself dispatches as `DrillInjected`.
    """

    async def kill(self, plan: KillPlan) -> Drill: ...

    async def scale(self, group: str, replicas: int) -> Scaled: ...

    async def stop_job(self, job_id: str) -> None: ...

    async def delete_job(self, job_id: str) -> None: ...

    async def launch(self, name: str, settings: Mapping[str, str]) -> str:
        """Submit the bundled job; returns the submission id."""
        ...

    def bundled_jobs(self) -> tuple[BundledJob, ...]:
        """Answers at once, from memory."""
        ...


LogSource: TypeAlias = "Callable[[str], Source | None]"
"""From a stream's name, `job:ID` or `pod:NAME`, to the source that follows that log; None when
nothing can."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A cluster to look at. The session is started; whoever made it closes it."""

    session: Session
    actions: Actions | None = None
    """None: nothing can be changed here."""
    log_source: LogSource | None = None
    ends_with_screen: str = ""
    """What quitting takes down with it, as a noun phrase; quitting then asks first."""


Say: TypeAlias = Callable[[str], None]

Connect: TypeAlias = Callable[[Say], Connection]
"""Runs in a thread while the screen is up already. Each line that it says is shown.

A CockpitError ends the start and is shown. When the user has quit meanwhile, the next line said
raises `Quit`, so that the start can undo what it has begun.
"""


class Quit(Exception):
    """The user left while the cluster was still starting."""
