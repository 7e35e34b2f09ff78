"""Whether a process that has imported the libraries of a run can be forked.

**Random identifiers.** Ray makes those of tasks and objects from a generator that takes its seed
from the system at its first use in a process (`FillRandom` in its C++ code; absl's pool of
entropy). If that was before a fork, all forks make the same ones, which end an actor with "Check
failed: erased == 1" as soon as it gets two such tasks, or take one object for another. The
declaration of an actor class uses it, and Ray Train declares some when it is imported.

**GPUs.** A process that has opened a GPU can use CUDA, but its forks cannot.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

FORKS = 2
GPUS = "/dev/nvidia"


class ActorClassIDs:
    """What `ray.actor` uses of Ray's class, from the system's own generator."""

    @staticmethod
    def from_random() -> object:
        from ray import ActorClassID

        return ActorClassID(os.urandom(ActorClassID.size()))


def keep_ids_apart() -> None:
    """Change this process, in which Ray is imported, before it imports other libraries."""
    import ray.actor

    ray.actor.ActorClassID = ActorClassIDs


def reason_not_to_fork(descriptors: Path = Path("/proc/self/fd")) -> str:
    """Return why forks of this process would not work, or an empty string if they would."""
    if "ray" in sys.modules and not _are_ids_apart():
        return "forks would have the same random identifiers"
    for descriptor in descriptors.iterdir():
        with suppress(OSError):  # that of the directory itself
            if (device := str(descriptor.readlink())).startswith(GPUS):
                return f"a library has opened {device}"
    return ""


def _are_ids_apart() -> bool:
    """Return whether forks of this process make different identifiers. Two forks show it."""
    import ray

    found = {in_a_fork(lambda: bytes(ray.UniqueID.from_random().binary())) for _ in range(FORKS)}
    return len(found) == FORKS


def in_a_fork(ask: Callable[[], bytes]) -> bytes:
    """Return what `ask` returns in a fork of this process, which it may change. If it raises, the
    error is logged, and nothing is returned.
    """
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as file:
                file.write(ask())
        except Exception:
            log.warning("a fork of the fork server failed", exc_info=True)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        found = file.read()
    os.waitpid(child, 0)
    return found
