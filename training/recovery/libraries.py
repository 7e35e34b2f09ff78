"""The libraries of a run: what spare processes import beforehand.

The controller writes them into Ray's key-value store, where new processes on all nodes read them:
first those of the driver, and those of rank 0 once it trains.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from training.recovery import fork_safety

_NAMESPACE = b"cockpit"
_ANSWER_S = 5.0
_FORK = "fork"

OMP = "OMP_NUM_THREADS"
"""Ray sets it for a rank just before its first task, by its CPUs. torch and NumPy read it when they
are imported: without it each rank on a spare would have a thread for each core of the node.
"""

_LEAN = sys.stdlib_module_names | {"torch", "ray", "numpy", "training", "pyarrow", "pandas"}
"""Libraries that are known not to touch a GPU when they are imported: if the ranks use GPUs, spares
import no others. A process that calls CUDA before Ray assigns its GPUs sees all GPUs from then on.
"""


@dataclass(frozen=True, slots=True)
class Libraries:
    names: Sequence[str]
    variables: Mapping[str, str]
    """That they read, unless the environment has them."""
    gently: bool = False
    """Ranks train: imports leave the CPU to them."""


def imported() -> list[str]:
    """Return the libraries that this process has imported.

    Only installed ones, and those of this package: importing a script's own modules may have
    effects.
    """
    roots = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
    return sorted(
        name
        for name, module in list(sys.modules.items())
        if name.startswith("training.") or str(getattr(module, "__file__", None)).startswith(roots)
        if name not in ("__main__", "__mp_main__")
    )


def of_ranks(names: Sequence[str], resources: Mapping[str, float]) -> Libraries:
    """Return the libraries of ranks that have these resources, from those of the driver or a rank.

    The first optimizer of a process imports `torch._dynamo`, which takes 1.3 s of CPU (torch 2.15).
    """
    if "torch" in names:
        names = [*names, "torch._dynamo"]
    if "GPU" in resources:
        names = [name for name in names if name.partition(".")[0] in _LEAN]
    return Libraries(names, {OMP: str(max(1, int(resources.get("CPU", 1))))})


def publish(libraries: Libraries) -> None:
    """In a process of the job that is connected to Ray."""
    from ray.experimental.internal_kv import _internal_kv_put

    text = json.dumps(asdict(libraries))
    _internal_kv_put(_key(_job(), "libraries"), text.encode(), overwrite=True, namespace=_NAMESPACE)


def published() -> Libraries | None:
    """In a process of the job that is connected to Ray."""
    from ray.experimental.internal_kv import _internal_kv_get

    return _decoded(_internal_kv_get(_key(_job(), "libraries"), namespace=_NAMESPACE))


def hurry() -> None:
    """In the controller, before ranks start: they may wait for imports."""
    if (found := published()) is not None and found.gently:
        publish(replace(found, gently=False))


def read(gcs: str, job: str) -> Libraries | None:
    """Return the libraries of a job, in a process that is not connected to Ray and will fork.

    A child of it asks the key-value store at `gcs`, because that starts threads.
    """
    fork_safety.keep_ids_apart()
    return _decoded(fork_safety.in_a_fork(lambda: _asked(gcs, job) or b""))


def newest(gcs: str) -> tuple[str, Libraries] | None:
    """As `read`, for the newest job that has not ended; with its id. This process does not import
    Ray, which reads the ids of the job and of the raylet from its environment when it is imported.
    """
    if not (found := fork_safety.in_a_fork(lambda: _newest(gcs))):
        return None
    job, _, text = found.partition(b" ")
    return job.decode(), Libraries(**json.loads(text))


def _newest(gcs: str) -> bytes:
    """The id of the job and its libraries, or nothing."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    client = GcsClient(address=gcs)
    jobs = client.get_all_job_info(
        skip_submission_job_info_field=True,
        skip_is_running_tasks_field=True,
        timeout=_ANSWER_S,
    )
    running: list[str] = [job.hex() for job, about in jobs.items() if not about.is_dead]
    for job in sorted(running, key=_number, reverse=True):
        if text := _text(client, job):
            return job.encode() + b" " + text
    return b""


def _number(job: str) -> int:
    return int.from_bytes(bytes.fromhex(job), "little")


def _asked(gcs: str, job: str) -> bytes | None:
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    return _text(GcsClient(address=gcs), job)


def _text(client: Any, job: str) -> bytes | None:
    found: bytes | None = client.internal_kv_get(
        _key(job, "libraries"), _NAMESPACE, timeout=_ANSWER_S
    )
    return found


def _decoded(text: bytes | None) -> Libraries | None:
    return Libraries(**json.loads(text)) if text else None


def announce(is_fork: bool) -> None:
    """In a new process of the job: it is ready, as a fork of the fork server or without one."""
    import ray
    from ray.experimental.internal_kv import _internal_kv_put

    context = ray.get_runtime_context()
    how = _FORK if is_fork else "own"
    key = _key(_job(), "nodes", context.get_node_id(), how, context.get_worker_id())
    _internal_kv_put(key, b"", overwrite=True, namespace=_NAMESPACE)


def announced() -> dict[str, list[bool]]:
    """Return the processes of the job that have started, by node: whether each is a fork."""
    from ray.experimental.internal_kv import _internal_kv_list

    prefix = _key(_job(), "nodes", "")
    keys: list[bytes] = _internal_kv_list(prefix, namespace=_NAMESPACE)
    found = dict[str, list[bool]]()
    for key in keys:
        node, how, _ = key.removeprefix(prefix).decode().split("/")
        found.setdefault(node, []).append(how == _FORK)
    return found


def _key(*path: str) -> bytes:
    return "/".join(("recovery", *path)).encode()


def _job() -> str:
    import ray

    return str(ray.get_runtime_context().get_job_id())
