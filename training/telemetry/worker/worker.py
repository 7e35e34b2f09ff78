"""A rank's side of the telemetry: folds steps, and pushes them from a separate thread."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import NoneType
from typing import Any, Final, ParamSpec, TypeVar

from training import telemetry
from training.telemetry.gpu.gpu import Gpu, GpuNumbers
from training.telemetry.hang.watchdog import Watchdog
from training.telemetry.settings import PUSH_INTERVAL_S
from training.telemetry.worker import attempt_observer
from training.telemetry.worker.background_value import Watch
from training.telemetry.worker.cuda import device_name
from training.telemetry.worker.flops import Model, mfu_percent, peak_flops
from training.telemetry.worker.overlap import Exposed, Overlap
from training.telemetry.worker.process_usage import Process
from training.telemetry.worker.record import record
from training.telemetry.worker.section_times import HOST, NAMES
from training.telemetry.worker.sender import ActorSink, Sink
from training.telemetry.worker.step_aggregate import (
    AggregatedSteps,
    StepAggregate,
    StepValues,
    kept,
    number,
)
from training.telemetry.worker.timed_loader import TimedLoader
from training.telemetry.worker.timers import FULL, Sections

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

PLAIN: Final = frozenset((NoneType, int, float))
"""Values that can be read later. A tensor or an array may have changed by then."""

FAILED = "telemetry: %s failed; training continues without it"


class RankTelemetry:
    """Nothing in here raises into the training loop: the first failure of a kind is logged, and the
    remaining telemetry continues.
    """

    def __init__(
        self,
        rank: int,
        attempt: int,
        sink: Sink,
        gpu_ids: Sequence[str] = (),
        fold: StepAggregate | None = None,
        sections: Sections | None = None,
        gpu: Gpu | None = None,
    ) -> None:
        self._rank, self._attempt, self._sink = rank, attempt, sink
        self._fold, self._sections = fold or StepAggregate(), sections or Sections()
        self._sections.on_step_end = self._on_step_end
        self.sections = self._sections.by_name
        self._process = Process()
        self._gpu = gpu or Gpu(gpu_ids)
        self._gpus = Watch("gpu", self._gpu.read)
        self._overlap: Overlap | None = None
        self._exposed: Watch[Exposed | None] | None = None
        self._has_gpus, self._devices = bool(gpu_ids), max(1, len(gpu_ids))
        self._model: Model | None = None
        self._failed: set[str] = set()
        self._pushing = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._watchdog: Watchdog | None = None

    def start(self, run: str = "") -> None:
        """With the id of its run the rank has a watchdog too."""
        self._thread.start()
        if run:
            self._watchdog = Watchdog(
                run,
                self._rank,
                self._attempt,
                lambda: (self._fold.steps_total, attempt_observer.reports()),
                self._sink.send_hang,
                lambda: self._sections.owner,
            )
            self._watchdog.start()
        if self._has_gpus:
            self._gpus.start()

    def close(self) -> None:
        """Its threads end; steps that were not pushed are lost."""
        self._end.set()
        if self._watchdog is not None:
            self._watchdog.close()
        self._gpus.close()
        if self._exposed is not None:
            self._exposed.close()

    def step(
        self,
        loss: Any = None,
        samples: Any = None,
        epoch: Any = None,
        learning_rate: Any = None,
        grad_norm: Any = None,
        step: Any = None,
        data_wait_s: Any = None,
        comm_s: Any = None,
        checkpoint_s: Any = None,
        tokens: Any = None,
    ) -> None:
        try:
            try:
                if type(loss) not in PLAIN and loss.requires_grad:
                    loss = loss.detach()  # its graph must not be kept alive
                if type(learning_rate) not in PLAIN and learning_rate.requires_grad:
                    learning_rate = learning_rate.detach()
                if type(grad_norm) not in PLAIN and grad_norm.requires_grad:
                    grad_norm = grad_norm.detach()
            except AttributeError:  # one of them is not a tensor
                loss, learning_rate, grad_norm = kept(loss), kept(learning_rate), kept(grad_norm)
            step_values: StepValues = (
                loss,
                samples,
                epoch,
                learning_rate,
                grad_norm,
                step,
                data_wait_s,
                comm_s,
                checkpoint_s,
                tokens,
            )
            sections = self._sections
            if type(samples) not in PLAIN or type(tokens) not in PLAIN:
                sections.end_step()
                sections.read()
                self._fold.step(*step_values)
            elif sections.needs_more:
                sections.end_step(step_values)
            else:  # what `end_step` does on most steps, and no more code than that
                written = sections.written
                written += (HOST, sections.clock(), step_values)
                if len(written) > FULL:
                    sections.make_room()
        except Exception:  # noqa: BLE001 - anything that the loop's own objects raise
            self._warn_of_step()

    def _on_step_end(self, ended: float, step_values: StepValues) -> None:
        try:
            self._fold.step(*step_values, ended)
        except Exception:  # noqa: BLE001 - as above
            self._warn_of_step()

    def _warn_of_step(self) -> None:
        if self._is_first("step"):
            log.warning(FAILED, "a step", exc_info=True)

    def no_section(self, name: object) -> AbstractContextManager[None, None]:
        """For a name that `sections` does not contain."""
        if self._is_first("section"):
            log.warning("telemetry: %r is not timed: sections are %s", name, ", ".join(NAMES))
        return nullcontext()

    def wrap(self, batches: Iterable[T]) -> TimedLoader[T]:
        return TimedLoader(batches, lambda: self.sections["data"])

    def model(
        self,
        flops_per_sample: float | None,
        flops_per_token: float | None,
        peak_flops: float | None,
    ) -> None:
        self._model = Model(
            flops_per_sample=number(flops_per_sample),
            flops_per_token=number(flops_per_token),
            peak_flops=number(peak_flops),
        )

    def ddp(self, module: Any) -> None:
        try:
            overlap = Overlap(module)
        except (AttributeError, TypeError):
            if self._is_first("ddp"):
                log.warning("telemetry: %s is not timed: it is no DDP", type(module).__name__)
            return
        if self._exposed is not None:
            self._exposed.close()
        self._overlap, self._exposed = overlap, Watch("ddp", overlap.read)
        self._exposed.start()

    def resume(self, step: int) -> None:
        self._guarded(self._resume, step)

    def _resume(self, step: int) -> None:
        self._sections.read()
        self._fold.resume(step)

    def push(self) -> None:
        """Send the folded steps; while the last record is in flight, continue folding."""
        with self._pushing:
            self._push()

    def _push(self) -> None:
        self._sections.read()
        if self._sink.busy():
            return
        folded = self._fold.take()
        if folded is None:
            return
        took = self._sections.take()
        self._sink.send(
            record(
                self._rank,
                self._attempt,
                folded,
                took,
                self._newest_exposed(folded),
                self._gpus.newest() or GpuNumbers(),
                self._process,
                self._mfu_percent(folded),
            )
        )

    def _newest_exposed(self, folded: AggregatedSteps) -> Exposed | None:
        if self._overlap is None or self._exposed is None:
            return None
        self._overlap.pace(folded.step_time_s, PUSH_INTERVAL_S)
        return self._exposed.newest()

    def _mfu_percent(self, folded: AggregatedSteps) -> float | None:
        model = self._model
        if model is None:
            return None
        needed = model.flops_per_s(folded.samples_per_s, folded.tokens_per_s)
        if needed is None:
            return None
        return mfu_percent(needed, model.peak_flops or self._peak_flops())

    def _peak_flops(self) -> float | None:
        """The peak of all GPUs of the rank, by their names; None if one is unknown."""
        names = self._gpu.names or (device_name(),) * self._devices
        peaks = [peak_flops(name) for name in names]
        known = [peak for peak in peaks if peak is not None]
        return sum(known) if len(known) == len(peaks) else None

    def flush(self, timeout_s: float) -> None:
        """Send the rest and wait until it has arrived, at most about `timeout_s`."""
        self._guarded(self._flush, timeout_s)

    def _flush(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        # The other thread may wait for a device that no longer answers.
        if not self._pushing.acquire(timeout=timeout_s):
            return
        try:
            self._sink.drain(max(0.0, deadline - time.monotonic()))
            self._push()
            self._sink.drain(max(0.0, deadline - time.monotonic()))
        finally:
            self._pushing.release()

    def _run(self) -> None:
        while not self._end.wait(PUSH_INTERVAL_S):
            self._guarded(self.push)

    def _guarded(self, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except Exception:
            what = getattr(act, "__name__", "a call").strip("_")
            if self._is_first(what):
                log.warning(FAILED, what, exc_info=True)

    def _is_first(self, what: str) -> bool:
        """For its kind. An operation that fails once usually fails every time."""
        known = what in self._failed
        self._failed.add(what)
        return not known


def attach(run: str, job: str, attempt: int, rank: int, gpu_ids: Sequence[str], to: Any) -> None:
    """Called in the rank's process, by the lifecycle callback, before the training function."""
    if telemetry._rank is not None:
        telemetry._rank.close()
    telemetry._rank = RankTelemetry(rank, attempt, ActorSink(run, job, to), gpu_ids)
    telemetry._rank.start(run)


def flush(timeout_s: float) -> None:
    """Called in the rank's process when its attempt is over."""
    if telemetry._rank is not None:
        telemetry._rank.flush(timeout_s)


def _detach_in_child() -> None:
    """A forked child, usually a DataLoader's worker, is not the rank.

    It has the rank's locks, some held forever, and none of its threads. The rank's telemetry is
    kept there unused, because destroying it would destroy CUDA events of the parent.
    """
    global _of_parent
    _of_parent, telemetry._rank = telemetry._rank, None


_of_parent: RankTelemetry | None = None
os.register_at_fork(after_in_child=_detach_in_child)
