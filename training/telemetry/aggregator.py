"""The actor on the head node that writes the telemetry stream of one driver."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.telemetry.settings import TICK_S
from training.telemetry.stream import StreamFile
from training.telemetry.wire import Body, Steps, Tick, file_name

log = logging.getLogger(__name__)

NAMESPACE = "cockpit"


class Aggregator:
    """Collects the ranks' records and writes one line a tick; lifecycle records at once.

    Serves as the class of the actor, and as itself in tests.
    """

    def __init__(self, path: Path, tick_s: float = TICK_S) -> None:
        self._stream = StreamFile(path)
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Steps]] = {}
        self._quiet = False
        self._tick_s = tick_s
        self._end = threading.Event()
        self._ticker = threading.Thread(target=self._run, name="tick", daemon=True)
        self._ticker.start()

    def push(self, run: str, records: Sequence[Steps]) -> None:
        """From a rank."""
        with self._lock:
            self._waiting.setdefault(run, []).extend(records)

    def write(self, t: float, body: Body) -> None:
        """From the controller; what the ranks did before comes before it in the file."""
        with self._lock:
            self._tick()
            self._append(t, body)

    def close(self) -> None:
        self._end.set()
        self._ticker.join()
        with self._lock:
            self._tick()
            self._stream.close()

    def _run(self) -> None:
        while not self._end.wait(self._tick_s):
            with self._lock:
                self._tick()

    def _tick(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for run, records in waiting.items():
            self._append(time.time(), Tick(run=run, ranks=tuple(records)))

    def _append(self, t: float, body: Body) -> None:
        try:
            self._stream.append(t, body)
            self._quiet = False
        except OSError:
            # A full disk: training goes on, and so does the stream when there is room again.
            if not self._quiet:
                log.warning("telemetry: the stream could not be written", exc_info=True)
            self._quiet = True


class AggregatorActor(Aggregator):
    """The aggregator of one Ray job, writing into the session's log directory of its node."""

    def __init__(self, job: str) -> None:
        from ray._private import worker  # the only way to the session's directory

        super().__init__(Path(worker._global_node.get_logs_dir_path()) / file_name(job))


def connect(job: str) -> Any:
    """The handle of the job's aggregator, made on the head node when there is none yet.

    It lives as long as the process that made it; whoever finds it gone may connect again.
    """
    import ray

    return (
        ray.remote(AggregatorActor)
        .options(
            name=_name(job),
            namespace=NAMESPACE,
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            # Every head offers this one, and nothing else does. A soft affinity to the head's
            # node is not always kept: seen, an aggregator on a worker, its file out of sight.
            resources={"node:__internal_head__": 0.001},
        )
        .remote(job)
    )


def find(job: str) -> Any | None:
    """The handle of the job's aggregator, if it is there."""
    import ray

    try:
        return ray.get_actor(_name(job), namespace=NAMESPACE)
    except ValueError:
        return None


def _name(job: str) -> str:
    return f"telemetry-{job}"
