"""A wall clock of cockpit's processes that a test can step, and a list of what their memory holds.

A time namespace of Linux shifts the monotonic clocks alone, and libfaketime shifts those too, which
no step of a wall clock does. So a `sitecustomize` module, loaded by PYTHONPATH into the processes
that get this environment and no others, adds a number of seconds to `time.time`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

SITECUSTOMIZE = """
import mmap, os, struct, time

with open(os.environ["SOAK_CLOCK"], "rb") as file:
    _offset = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
_real = time.time

def _stepped():
    return _real() + struct.unpack_from("d", _offset)[0]

time.time = _stepped

def _list_objects(*_):
    import collections, gc, json, sys
    objects = gc.get_objects()  # before those that this function makes
    sizes, counts, seen = collections.Counter(), collections.Counter(), set()

    def named(of):
        return f"{type(of).__module__}.{type(of).__qualname__}"

    def add(name, of):
        sizes[name] += sys.getsizeof(of, 0)
        counts[name] += 1

    def add_untracked(holder, of):  # texts, numbers, and what holds nothing else
        for part in gc.get_referents(of):
            if not gc.is_tracked(part) and id(part) not in seen:
                seen.add(id(part))
                add(f"{named(part)} in {holder}", part)
                add_untracked(named(part), part)

    for of in objects:
        add(named(of), of)
        add_untracked(named(of), of)
    kinds = {name: [counts[name], size] for name, size in sizes.items()}
    path = os.environ["SOAK_OBJECTS"]
    with open(path + ".part", "w") as file:
        blocks, modules = sys.getallocatedblocks(), sorted(sys.modules)
        json.dump({"blocks": blocks, "kinds": kinds, "modules": modules}, file)
    os.replace(path + ".part", path)

if os.environ.get("SOAK_OBJECTS"):
    import signal
    signal.signal(signal.SIGUSR2, _list_objects)
"""


class SteppedClock:
    """`environment` is what a process needs to have it."""

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "offset"
        self._offset.write_bytes(struct.pack("d", 0.0))
        (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
        self.environment: Mapping[str, str] = {
            "PYTHONPATH": os.pathsep.join(
                [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "SOAK_CLOCK": str(self._offset),
        }

    def step(self, offset_s: float) -> None:
        """Set the clock of all processes to the real time plus `offset_s`."""
        with self._offset.open("r+b") as file:  # in place: it is mapped
            file.write(struct.pack("d", offset_s))
