"""Report a trial that trains in its own process to the telemetry stream, as a run of one rank.

Its id is that of the trial, and each start of the trial is an attempt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import ray
from ray import tune

from training.telemetry.failsafe import guarded
from training.telemetry.gpu.gpu import by_name
from training.telemetry.head.outbox import ActorOutbox
from training.telemetry.ray_train import lineage
from training.telemetry.ray_train.lifecycle import Lifecycle
from training.telemetry.ray_train.lineage import Lineage
from training.telemetry.ray_train.own_driver import Folder, is_wanted
from training.telemetry.settings import FINAL_FLUSH_TIMEOUT_S, FLUSH_TIMEOUT_S
from training.telemetry.wire import Worker
from training.telemetry.worker import attempt_observer, worker

RANK = 0


@contextmanager
def reporting(name: str, environment: Mapping[str, str]) -> Iterator[None]:
    """If the environment requests the telemetry of runs."""
    if not is_wanted(environment):
        yield
        return
    run = _Run()
    run.begin(name)
    try:
        yield
    except Exception as error:
        run.end("ERRORED", f"{type(error).__name__}: {error}".partition("\n")[0])
        raise
    except SystemExit:  # Tune stops or pauses a trial this way, within its report
        run.pause()
        raise
    else:
        run.end("FINISHED", "")


class _Run:
    _lifecycle: Lifecycle | None = None
    _outbox: ActorOutbox | None = None

    @guarded
    def begin(self, name: str) -> None:
        context, trial = ray.get_runtime_context(), tune.get_context().get_trial_id()
        storage = tune.get_context().get_storage()
        where = Folder(storage.trial_fs_path, storage.storage_filesystem)
        before = lineage.read(where)
        self._outbox = ActorOutbox(context.get_job_id())
        self._lifecycle = Lifecycle(
            run=trial,
            name=name,
            job=context.get_job_id(),
            submission="",
            outbox=self._outbox,
            attempts=before.attempts if before else 0,
            trial=trial,
        )
        gpus = [str(gpu) for gpu in ray.get_gpu_ids()]
        attempt = self._lifecycle.attempt_starts(
            [
                Worker(
                    rank=RANK,
                    node_id=context.get_node_id(),
                    node_ip=ray.util.get_node_ip_address(),
                    pid=os.getpid(),
                    **by_name(gpus),
                )
            ]
        )
        self._lifecycle.state("RUNNING")
        lineage.write(where, Lineage(trial, attempt))
        aggregator = self._outbox.aggregator
        worker.attach(trial, self._lifecycle.job, attempt, RANK, gpus, aggregator)
        attempt_observer.begin(trial, attempt, RANK, aggregator)

    @guarded
    def pause(self) -> None:
        """The search knows whether it continues, and reports the trial."""
        self._end("the search stopped or paused it")

    @guarded
    def end(self, state: str, why: str) -> None:
        self._end(why or state.lower(), state, why)

    def _end(self, reason: str, state: str = "", why: str = "") -> None:
        if self._lifecycle is None or self._outbox is None:
            return
        worker.flush(FLUSH_TIMEOUT_S)
        self._lifecycle.attempt_ends(reason)
        if state:
            self._lifecycle.state(state, why)
        self._outbox.drain(FINAL_FLUSH_TIMEOUT_S)
