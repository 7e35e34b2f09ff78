"""Secrets out of this process's own arguments, which every user of the machine reads with ps."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cockpit.model.secret import masked_command

PROC = Path("/proc/self")
_ARG_START, _ARG_END = 45, 46
"""Places of both among the fields after the name in /proc/PID/stat (48 and 49 of proc(5))."""


def hide_secrets() -> None:
    """Mask values that look like a secret with `*`, in the memory behind /proc/PID/cmdline.

    Linux only; without a readable /proc this does nothing. sys.argv is a copy and is not changed.
    Between the start of the process and this call the arguments are visible.
    """
    with suppress(OSError, ValueError, IndexError):
        text = (PROC / "cmdline").read_bytes().split(b"\0")[:-1]
        shown = masked_command([os.fsdecode(label) for label in text])
        if any(os.fsencode(new) != old for new, old in zip(shown, text, strict=True)):
            _overwrite(text, [os.fsencode(label) for label in shown])


def _overwrite(arguments: list[bytes], shown: list[bytes]) -> None:
    import ctypes

    from cockpit.config.process_identity import stat

    fields = stat(PROC)
    address = int(fields[_ARG_START])
    if int(fields[_ARG_END]) - address != sum(len(text) + 1 for text in arguments):
        return  # already changed by other code
    for old, new in zip(arguments, shown, strict=True):
        if old != new:
            pairs = enumerate(zip(old, new, strict=False))
            same = next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))
            ctypes.memset(address + same, ord("*"), len(old) - same)
        address += len(old) + 1
