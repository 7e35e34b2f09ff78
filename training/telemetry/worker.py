"""A rank's side of the telemetry: folds steps, and pushes from a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, ParamSpec, Protocol

from training import telemetry
from training.telemetry.fold import Fold
from training.telemetry.gpu import Gpu
from training.telemetry.process import Process
from training.telemetry.settings import PUSH_INTERVAL_S
from training.telemetry.wire import Steps

log = logging.getLogger(__name__)

P = ParamSpec("P")


class Sink(Protocol):
    """Where a rank's records go."""

    def busy(self) -> bool:
        """The last record is still under way."""
        ...

    def send(self, record: Steps) -> None:
        """Returns at once."""
        ...

    def drain(self, timeout_s: float) -> None:
        """Wait until the last record has arrived."""
        ...


class RankTelemetry:
    """Nothing in here raises into the training loop: the first failure is logged and the rest
    is silence."""

    def __init__(
        self,
        rank: int,
        attempt: int,
        sink: Sink,
        gpu_ids: Sequence[str] = (),
        fold: Fold | None = None,
    ) -> None:
        self._rank, self._attempt, self._sink = rank, attempt, sink
        self._fold = fold or Fold()
        self._process, self._gpu = Process(), Gpu(gpu_ids)
        self._pushing = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def step(self, *numbers: Any) -> None:
        """`Fold.step`, which is where the numbers are named."""
        if self._end.is_set():
            return
        self._guarded(self._fold.step, *numbers)

    def resume(self, step: int) -> None:
        self._guarded(self._fold.resume, step)

    def push(self) -> None:
        """Send what was folded, unless the last record is still under way: then go on folding."""
        with self._pushing:
            if self._sink.busy():
                return
            folded = self._fold.take()
            if folded is None:
                return
            gpu = self._gpu.read()
            self._sink.send(
                Steps(
                    rank=self._rank,
                    attempt=self._attempt,
                    cpu_percent=self._process.cpu_percent(),
                    memory_bytes=self._process.memory_bytes(),
                    gpu_utilization_percent=gpu.utilization_percent,
                    gpu_memory_bytes=gpu.memory_bytes,
                    gpu_power_w=gpu.power_w,
                    gpu_temperature_c=gpu.temperature_c,
                    **asdict(folded),
                )
            )

    def flush(self, timeout_s: float) -> None:
        """Send the rest and wait until it has arrived, at most about `timeout_s`."""
        self._guarded(self._flush, timeout_s)

    def _flush(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self._sink.drain(timeout_s)
        self.push()
        self._sink.drain(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while not self._end.wait(PUSH_INTERVAL_S):
            self._guarded(self.push)

    def _guarded(self, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except Exception:
            if not self._end.is_set():
                self._end.set()
                what = getattr(act, "__name__", "a call").strip("_")
                log.warning(
                    "telemetry: %s failed; training goes on without it", what, exc_info=True
                )


class ActorSink:
    """Sends to the aggregator actor. A record that failed to arrive goes along with the next."""

    def __init__(self, run: str, job: str, aggregator: Any) -> None:
        self._run, self._job, self._aggregator = run, job, aggregator
        self._under_way: Any = None
        self._unsaid: list[Steps] = []

    def busy(self) -> bool:
        if self._under_way is None:
            return False
        import ray

        done, _ = ray.wait([self._under_way], timeout=0)
        if not done:
            return True
        try:
            ray.get(self._under_way)
            self._unsaid.clear()
        except ray.exceptions.RayError as error:
            # It died or its node did; it is restarted, or the controller makes another.
            log.info("telemetry: the aggregator does not answer (%s)", error)
            self._find()
        self._under_way = None
        return False

    def send(self, record: Steps) -> None:
        self._unsaid = [*self._unsaid, record][-60:]
        self._under_way = self._aggregator.push.remote(self._run, tuple(self._unsaid))

    def drain(self, timeout_s: float) -> None:
        import ray

        if self._under_way is not None:
            ray.wait([self._under_way], timeout=timeout_s)

    def _find(self) -> None:
        from training.telemetry.aggregator import find

        self._aggregator = find(self._job) or self._aggregator


def attach(run: str, job: str, attempt: int, rank: int, gpu_ids: Sequence[str], to: Any) -> None:
    """Called in the rank's process, by the lifecycle callback, before the training function."""
    telemetry._rank = RankTelemetry(rank, attempt, ActorSink(run, job, to), gpu_ids)
    telemetry._rank.start()


def flush(timeout_s: float) -> None:
    """Called in the rank's process when its attempt is over."""
    if telemetry._rank is not None:
        telemetry._rank.flush(timeout_s)
