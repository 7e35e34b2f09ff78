"""The records that a reader of only the newest files of a stream needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from training.telemetry.wire import (
    AttemptEnd,
    AttemptStart,
    Hang,
    Notice,
    Phase,
    Quorum,
    RanksReplaced,
    Record,
    Report,
    Run,
    Segment,
    Tick,
    Trials,
)

ATTEMPTS_KEPT = 200
"""The limit for starts, and for ends; only the newest start of a run keeps its placements, 100 KB
for 1,000 ranks.
"""
PHASES_KEPT = 500
NOTICES_KEPT = 100
CHECKPOINTS_KEPT = 500
TRIALS_KEPT = 1000
RUNS_KEPT = 500
REPLACED_KEPT = 500


class SegmentSnapshot:
    """Runs with their states, attempts, phases and checkpoints, and trials; not the ticks.

    Kept as records with their original numbers, so that a reader who has them drops them. Bounded
    by count: the oldest are dropped.
    """

    def __init__(self) -> None:
        self._kept: dict[str, dict[object, Record]] = {}

    def take(self, record: Record) -> None:
        body = record.body
        match body:
            case Run():
                # The first state and all later ones: a run's duration and its recoveries.
                self._keep("run", record.seq, record, RUNS_KEPT)
            case AttemptStart():
                self._without_placements(body.run)
                self._keep("start", (body.run, body.attempt), record, ATTEMPTS_KEPT)
            case AttemptEnd():
                self._keep("end", (body.run, body.attempt), record, ATTEMPTS_KEPT)
            case RanksReplaced():
                for worker in body.workers:
                    self._keep("replaced", (body.run, worker.rank), record, REPLACED_KEPT)
            case Quorum():
                self._keep("quorum", body.run, record, RUNS_KEPT)
            case Phase():
                self._keep("phase", record.seq, record, PHASES_KEPT)
            case Notice():
                self._keep("notice", record.seq, record, NOTICES_KEPT)
            case Report(checkpoint=""):
                self._keep("report", body.run, record, RUNS_KEPT)
            case Report():
                lean = Record(record.seq, record.t, replace(body, by_rank=()))
                self._keep("checkpoint", record.seq, lean, CHECKPOINTS_KEPT)
            case Trials():
                for trial in body.trials:
                    alone = Record(record.seq, record.t, replace(body, trials=(trial,)))
                    self._keep("trial", (body.experiment, trial.id), alone, TRIALS_KEPT)
            case Tick() | Segment() | Hang():
                pass

    def records(self) -> list[Record]:
        """In order of their numbers. Trials of one line are one line again."""
        every = sorted(
            (record for kept in self._kept.values() for record in kept.values()),
            key=lambda record: record.seq,
        )
        return list(_joined(every))

    def _keep(self, kind: str, key: object, record: Record, limit: int) -> None:
        kept = self._kept.setdefault(kind, {})
        kept.pop(key, None)  # so that the newest are last
        kept[key] = record
        while len(kept) > limit:
            del kept[next(iter(kept))]

    def _without_placements(self, run: str) -> None:
        for key, record in self._kept.get("start", {}).items():
            body = record.body
            if isinstance(body, AttemptStart) and body.run == run and body.workers:
                lean = replace(body, workers=())
                self._kept["start"][key] = Record(record.seq, record.t, lean)


def _joined(records: list[Record]) -> Iterator[Record]:
    for _, same in itertools.groupby(records, key=lambda record: record.seq):
        first, *rest = same
        body = first.body
        if isinstance(body, Trials):
            others = [record.body for record in rest]
            trials = [trial for of in others if isinstance(of, Trials) for trial in of.trials]
            first = Record(first.seq, first.t, replace(body, trials=(*body.trials, *trials)))
        yield first
