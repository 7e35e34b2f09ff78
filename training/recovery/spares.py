"""Spare worker processes: started, and with the run's libraries imported, before they are needed.

Starting the ranks' processes is most of a restart: Python, Ray and torch take 4 to 6 s of CPU for
each, all at the same time. Ray keeps idle processes, gives one to the next actor with the same
runtime environment, and a raylet can be asked to start some (`NodeManagerService.PrestartWorkers`,
the call that Ray itself uses for a new driver). So each node that may run a rank keeps some.

A spare costs memory, about as much as `import torch`, and some seconds of CPU after each start. It
ends with its job. Nothing here raises: without spares a run restarts as Ray does it.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import logging
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from training.recovery.nodes import ANSWER_S, Node, alive
from training.recovery.settings import CHECK_EVERY_S, IMPORTS_BYTES, KEEP_S, SPARE_MEMORY_BYTES

log = logging.getLogger(__name__)

HOOK = {"__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "training.recovery.spares.preload"}
"""Ray's variable for a function that a worker process calls first (`ray_constants`, Ray 2.60)."""

_NAMESPACE = b"cockpit"


class Spares:
    """The spares of one worker group, maintained by a thread of the controller."""

    def __init__(self, workers: Sequence[Any], resources: Mapping[str, float]) -> None:
        """`resources` are those of one rank. Starts, and waits for the ranks' imports."""
        self._workers = workers
        self._resources = dict(resources)
        self._end = threading.Event()
        self._asked: set[str] = set()
        threading.Thread(target=self._run, name="spares", daemon=True).start()

    def stop(self) -> None:
        """Existing spares are kept for the next attempt."""
        self._end.set()

    def _run(self) -> None:
        try:
            runtime_env = self._wait_for_imports()
            while runtime_env and not self._end.wait(CHECK_EVERY_S):
                self._check(runtime_env)
        except Exception:
            if not self._end.is_set():  # a rank that was asked has died, and its group with it
                log.warning("no spare processes are kept; the run continues", exc_info=True)

    def _wait_for_imports(self) -> str:
        """Wait until rank 0 has imported what it needs; returns its runtime environment, or empty
        if that is too late.
        """
        before = -1
        while not self._end.wait(CHECK_EVERY_S):
            runtime_env, names = ray.get(self._workers[0].execute_async(loaded))
            if len(names) == before:
                _publish(names, lean="GPU" in self._resources)
                return str(runtime_env)
            before = len(names)
        return ""

    def _check(self, runtime_env: str) -> None:
        """A node that joins, such as a replacement, gets spares too."""
        for node in alive():
            room = min(node.room(self._resources), len(self._workers))
            if room and node.id not in self._asked:
                self._asked.add(node.id)
                _ask(node, runtime_env, room)


def loaded() -> tuple[str, list[str]]:
    """In a rank: its runtime environment as Ray compares it, and the libraries it has imported.

    Only installed ones, and those of this package: importing a script's own modules may have
    effects.
    """
    roots = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
    names = [
        name
        for name, module in list(sys.modules.items())
        if name.startswith("training.") or str(getattr(module, "__file__", None)).startswith(roots)
    ]
    return ray.get_runtime_context().get_runtime_env_string(), sorted(names)


def preload() -> None:
    """Import the run's libraries in a new worker process, before it takes work.

    In the first attempt the list does not exist yet, and nothing is done. Never raises: Ray ends a
    process whose hook raises.
    """
    try:
        from ray.experimental.internal_kv import _internal_kv_get

        listed = _internal_kv_get(_key(), namespace=_NAMESPACE)
        if not listed:
            return
        session = Path(ray._private.worker._global_node.get_session_dir_path())
        with _reserved_memory(session / "cockpit-spares", _free_bytes) as is_reserved:
            if is_reserved:
                _import(json.loads(listed))
    except Exception:
        log.warning("nothing was imported beforehand; the run continues", exc_info=True)


def _import(names: Sequence[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            log.debug("%s was not imported beforehand", name, exc_info=True)


@contextmanager
def _reserved_memory(importing: Path, free_bytes: Callable[[], float]) -> Iterator[bool]:
    """Yield whether the node has memory for one more process with the run's libraries.

    Spares start at the same time. Each one that still imports has a file, named by its process id,
    in the directory `importing`: the memory that it is about to use counts as used.
    """
    importing.mkdir(mode=0o700, exist_ok=True)
    mine = importing / str(os.getpid())
    lock = os.open(importing, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = [path for path in importing.iterdir() if Path("/proc", path.name).exists()]
        is_reserved = free_bytes() - len(others) * IMPORTS_BYTES > SPARE_MEMORY_BYTES
        if is_reserved:
            mine.touch()
    finally:
        os.close(lock)
    try:
        yield is_reserved
    finally:
        mine.unlink(missing_ok=True)


def _free_bytes() -> float:
    """Return the memory left in this container or host before Ray's memory monitor ends workers."""
    from ray._common.utils import get_system_memory
    from ray._private.utils import get_used_memory

    usable = float(os.environ.get("RAY_memory_usage_threshold", "0.95"))  # noqa: SIM112
    return float(usable * get_system_memory() - get_used_memory())


def _publish(names: Sequence[str], *, lean: bool) -> None:
    """`lean`: only libraries that are known not to touch a GPU when imported.

    A process that calls CUDA before Ray assigns its GPUs sees all GPUs from then on.
    """
    from ray.experimental.internal_kv import _internal_kv_put

    kept = [name for name in names if not lean or name.partition(".")[0] in _LEAN]
    _internal_kv_put(_key(), json.dumps(kept).encode(), overwrite=True, namespace=_NAMESPACE)


_LEAN = sys.stdlib_module_names | {"torch", "ray", "numpy", "training", "pyarrow", "pandas"}


def _key() -> bytes:
    return f"recovery/modules/{ray.get_runtime_context().get_job_id()}".encode()


def _ask(node: Node, runtime_env: str, count: int) -> None:
    """Raises grpc.RpcError if the node does not respond."""
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated import (
        common_pb2,
        node_manager_pb2,
        node_manager_pb2_grpc,
        runtime_environment_pb2,
    )

    request = node_manager_pb2.PrestartWorkersRequest(
        language=common_pb2.Language.PYTHON,
        job_id=bytes.fromhex(ray.get_runtime_context().get_job_id()),
        runtime_env_info=runtime_environment_pb2.RuntimeEnvInfo(serialized_runtime_env=runtime_env),
        keep_alive_duration_secs=KEEP_S,
        num_workers=count,
    )
    with init_grpc_channel(f"{node.address}:{node.port}") as channel:
        stub = node_manager_pb2_grpc.NodeManagerServiceStub(channel)
        stub.PrestartWorkers(request, timeout=ANSWER_S)
