"""Changes with a trace: in the audit log, on the object, and in the session.

A change is recorded twice: on this host in the audit log, also when it failed, and on the object,
if the cluster supports it (`Backend.announce`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from cockpit.actions import audit
from cockpit.backends.protocol import Backend, Change
from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.model.event import Event, Notice
from cockpit.model.run import Job
from cockpit.model.secret import masked
from cockpit.model.text import one_line

if TYPE_CHECKING:
    from cockpit.session.session import Session

CLUSTER_KINDS = {"kuberay": "RayCluster"}
"""The name of a cluster by kind; `Cluster` for the others."""


class AuditedActions:
    """Coroutines must run on the loop of the session that owns this backend.

    `jobs` returns the known jobs: which of them a RayJob submitted. `emit` is called with each
    requested change, as a Notice of the source `user`, which is recorded. `refusal`: why changes
    are not allowed; empty when they are.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Callable[[], float] = server_time,
        jobs: Callable[[], Mapping[str, Job]] = dict,
        emit: Callable[[Event], None] | None = None,
        refusal: str = "",
    ) -> None:
        self._backend = backend
        self._emit = emit
        self._clock = clock
        self._jobs = jobs
        self._refusal = refusal

    @classmethod
    def on(cls, session: Session) -> Self:
        return cls(session.backend, session.clock, lambda: session.store.jobs, session.dispatch)

    def _of_cluster(self, action: str, before: str = "", after: str = "") -> Change:
        ref = self._backend.ref
        kind = CLUSTER_KINDS.get(ref.backend, "Cluster")
        return Change(action, kind, ref.name, before=before, after=after)

    @contextmanager
    def _audited(self, change: Change) -> Iterator[None]:
        """Open the audit log before the change that is made inside, and record its failure."""
        self.require_allowed()
        audit.require_writable()
        try:
            yield
        except CockpitError as error:
            self._write(change, error)
            raise
        except asyncio.CancelledError:
            interrupted = CockpitError("interrupted: the change may have been made")
            self._write(change, interrupted, is_known=False)
            raise

    def require_allowed(self) -> None:
        """Raises NotAllowedError where nothing may be changed."""
        if self._refusal:
            raise NotAllowedError("Nothing can be changed here.", self._refusal)

    async def _done(self, change: Change) -> None:
        self._write(change)
        await self._backend.announce(change)

    def _write(
        self, change: Change, error: CockpitError | None = None, *, is_known: bool = True
    ) -> None:
        """Add the change to the audit log and to the events; `is_known` as in `audit.record`."""
        unwritten = audit.record(
            change.action,
            self._backend.ref,
            change.name,
            kind=change.kind,
            before=change.before,
            after=change.after,
            error=one_line(str(error)) if error else "",
            is_known=is_known,
        )
        what = one_line(masked(f"{change.action} {change_text(change)}: {error or 'done'}"))
        reason = "Failed" if error else "Requested"
        self._notice(change.kind, change.name, reason, what, warning=error is not None)
        if unwritten:
            self._notice(change.kind, change.name, "AuditLog", one_line(unwritten))

    def _notice(
        self, kind: str, name: str, reason: str, message: str, *, warning: bool = True
    ) -> None:
        if self._emit is None:
            return
        self._emit(
            Notice(
                at_s=self._clock(),
                source="user",
                kind=kind,
                name=name,
                reason=reason,
                message=message,
                warning=warning,
            )
        )


def change_text(change: Change) -> str:
    """`before → after`, of the known values."""
    return " → ".join(part for part in (change.before, change.after) if part)
