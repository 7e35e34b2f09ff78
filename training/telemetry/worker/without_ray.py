"""Telemetry of a rank that Ray Train did not start, through its agent's relay, if it has one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from training import telemetry
from training.stop import Stop
from training.telemetry.settings import FINAL_FLUSH_TIMEOUT_S
from training.telemetry.wire import Report
from training.telemetry.worker import attempt_observer
from training.telemetry.worker.attempt_observer import AttemptObserver
from training.telemetry.worker.relay import (
    VARIABLE,
    AttemptStarted,
    Ended,
    Hello,
    PhaseNote,
    RankAssignment,
    RelayClient,
)
from training.telemetry.worker.worker import RankTelemetry

if TYPE_CHECKING:
    from training.loop.world import World


class _Notes:
    """The aggregator's handle for an AttemptObserver: `note` is this object."""

    def __init__(self, line: RelayClient) -> None:
        self._line, self.note = line, self

    def remote(self, run: str, attempt: int, rank: int, what: str, t: float) -> None:
        self._line.send_message(PhaseNote(attempt, rank, what, t))


class Rank:
    """The telemetry of one rank beside its steps."""

    def __init__(self, line: RelayClient, world: World) -> None:
        """Call on all ranks. Raises OSError and EOFError if the agent does not respond."""
        seat: RankAssignment = line.request(Hello(world.rank, world.local_rank, os.getpid()))
        workers = world.gather_all(seat.worker)
        attempt = line.request(AttemptStarted(tuple(workers))) if world.rank == 0 else 0
        self.attempt = world.gather_all(attempt)[0]
        self._line, self._run, self._rank = line, seat.run, world.rank
        gpu_ids = [*map(str, seat.worker.gpu_ids), *seat.worker.gpu_uuids]
        attempt_observer._observer = AttemptObserver(
            _Notes(line), seat.run, self.attempt, world.rank
        )
        telemetry._rank = RankTelemetry(world.rank, self.attempt, line, gpu_ids)
        telemetry._rank.start(seat.run)

    def reads(self) -> AbstractContextManager[None]:
        """A context for reading a checkpoint: one rank reports for all."""
        observer = attempt_observer._observer if self._rank == 0 else None
        return nullcontext() if observer is None else observer.reads()

    def reports(self) -> None:
        """Call at the start of each report."""
        if attempt_observer._observer is not None:
            attempt_observer._observer.report_begins()

    def reported(
        self, metrics: Mapping[str, float], checkpoint: str, size_bytes: int | None
    ) -> None:
        """Rank 0: the checkpoint of a report is finished, or it has none."""
        self._line.send_message(
            Report(
                run=self._run,
                attempt=self.attempt,
                metrics=dict(metrics),
                checkpoint=checkpoint,
                checkpoint_bytes=size_bytes,
            )
        )

    def ends(self, why: str) -> None:
        if telemetry._rank is not None:
            telemetry._rank.flush(FINAL_FLUSH_TIMEOUT_S)
            telemetry._rank.close()
        telemetry._rank, attempt_observer._observer = None, None
        self._line.send_message(Ended(self._rank, why))
        self._line.close()


@contextmanager
def rank_telemetry(world: World) -> Iterator[Rank | None]:
    """A context for the training of a rank; None outside of a Ray cluster."""
    address = os.environ.get(VARIABLE)
    if not address:
        yield None
        return
    rank = Rank(RelayClient(address), world)
    try:
        yield rank
    except Stop:  # not a failure: the rank returns its text, and the driver reports it
        rank.ends("")
        raise
    except BaseException as error:
        first = (str(error).strip().splitlines() or [""])[0]
        rank.ends(f"{type(error).__name__}: {first}")
        raise
    rank.ends("")
