"""The Python stacks of all threads of this process, without reading a file.

A file could be on the storage that hangs: the call of a frame is read from its bytecode.
"""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

from training.process_stat import stat
from training.telemetry.wire import Stack, Thread

THREADS = 12
FRAMES = 64
TEXT = 120
"""The maximum length of a frame, a name or a call."""

TRAINING_THREAD = "TrainingThread("
"""Ray Train's name of the thread of the training function (ray 2.60, thread_runner.py)."""

_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
_OURS = f"{Path(__file__).parents[1]}{os.sep}"
_PEER = {"recv": "src", "send": "dst", "irecv": "src", "isend": "dst"}
"""Functions of torch.distributed, with the parameter that is the other rank."""


def stacks(owner: int | None = None) -> tuple[tuple[Thread, ...], tuple[Stack, ...]]:
    """Return the threads, except for the caller's and telemetry's own, the training thread first.

    `owner` is the identifier of the thread that executes the steps, if known.
    """
    frames = sys._current_frames()
    known = {thread.ident: thread for thread in threading.enumerate()}
    named = [thread.ident for thread in known.values() if thread.name.startswith(TRAINING_THREAD)]
    training = named[-1] if named else owner or threading.main_thread().ident
    found: list[tuple[bool, str, str, Stack]] = []
    for ident, frame in frames.items():
        thread = known.get(ident)
        name = thread.name if thread is not None else ""
        if name.startswith("telemetry"):
            continue
        state = _state(thread.native_id) if thread is not None else ""
        found.append((ident == training, name[:TEXT], state, stack(frame)))
    # One of them is this call's own: in that cycle all would keep their variables, as tensors.
    del frames, frame
    found.sort(key=lambda each: (not each[0], each[3].user < 0))
    threads = tuple(
        Thread(name=name, stack=index, state=state, is_training=is_training)
        for index, (is_training, name, state, _) in enumerate(found[:THREADS])
    )
    return threads, tuple(each[3] for each in found[:THREADS])


def stack(innermost: FrameType) -> Stack:
    """Frames outside of the user's outermost one are omitted: they start the thread."""
    frames, is_user, peer = [], [], -1
    for frame in _outwards(innermost):
        code = frame.f_code
        file, of_user = _place(code.co_filename)
        frames.append(f"{code.co_name} ({file}:{frame.f_lineno})"[:TEXT])
        is_user.append(of_user)
        if peer < 0 and code.co_name in _PEER and file.startswith("torch/distributed/"):
            other = frame.f_locals.get(_PEER[code.co_name])
            peer = other if isinstance(other, int) else -1
    if True in is_user:
        outermost = len(is_user) - is_user[::-1].index(True)
        return Stack(
            frames=tuple(frames[:outermost]),
            user=is_user.index(True),
            call=called(innermost),
            peer=peer,
        )
    return Stack(frames=tuple(frames), call=called(innermost), peer=peer)


def _outwards(innermost: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = innermost
    for _ in range(FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


@lru_cache(maxsize=2048)
def _place(filename: str) -> tuple[str, bool]:
    """Return the shortest path from an entry of sys.path, and whether it is the user's code."""
    if filename.startswith("<"):
        return filename, not filename.startswith("<frozen")
    folders = [entry for entry in sys.path if entry and filename.startswith(f"{entry}{os.sep}")]
    folder = max(folders, key=len, default="")
    path = os.path.relpath(filename, folder) if folder else filename
    of_library = (
        "site-packages" in filename
        or "dist-packages" in filename
        or filename.startswith((f"{_STANDARD_LIBRARY}{os.sep}", _OURS))
    )
    return path if folder or of_library else Path(filename).name, not of_library


def called(frame: FrameType) -> str:
    """Return the dotted name that the frame currently calls; '' if it is not a plain name."""
    with suppress(Exception):
        return _called(frame.f_code, frame.f_lasti)[:TEXT]
    return ""


@lru_cache(maxsize=256)
def _called(code: CodeType, at: int) -> str:
    """Names loaded from the position where the expression of the call begins."""
    *before, here = [one for one in dis.get_instructions(code) if one.offset <= at]
    loads = [one for one in before if one.opname.startswith("LOAD_") and one.opname != "LOAD_CONST"]
    is_with = here.opname == "BEFORE_WITH"
    start = _start(loads[-1] if is_with else here)
    names = [str(one.argval) for one in loads if _start(one) == start]
    if is_with:  # the same name may be loaded there more than once
        return f"with {'.'.join(names[-1:])}"
    return ".".join(names)


def _start(one: dis.Instruction) -> tuple[int | None, int | None] | None:
    positions = one.positions
    return None if positions is None else (positions.lineno, positions.col_offset)


def _state(native_id: int | None) -> str:
    """Return the kernel's state of a thread; '' without /proc."""
    with suppress(OSError, IndexError):
        return stat(f"self/task/{native_id}")[0]
    return ""
