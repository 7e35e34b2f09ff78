"""The CUDA functions that timing needs, of a torch that the training loop has imported.

Nothing here imports torch, creates a CUDA context, or waits for the device.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol


class Event(Protocol):
    """`torch.cuda.Event(enable_timing=True)`."""

    def record(self) -> None:
        """On the current stream."""
        ...

    def query(self) -> bool:
        """Whether the device has passed the newest record."""
        ...

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds. Raises RuntimeError if the device has not passed both."""
        ...


class Device(Protocol):
    def event(self) -> Event: ...

    def is_capturing(self) -> bool:
        """The current stream is recording a CUDA graph, which would capture an event."""
        ...

    def enter(self) -> None:
        """Make it the calling thread's device: a new thread starts with device 0, which may be
        another rank's.
        """
        ...


class CudaDevice:
    """The current device of the thread that creates it, which must be the training thread."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._index: int = torch.cuda.current_device()

    def event(self) -> Event:
        made: Event = self._torch.cuda.Event(enable_timing=True)
        return made

    def is_capturing(self) -> bool:
        return bool(self._torch.cuda.is_current_stream_capturing())

    def enter(self) -> None:
        self._torch.cuda.set_device(self._index)


def device() -> Device | None:
    """None until the training loop has used CUDA."""
    torch = initialised()
    return None if torch is None else CudaDevice(torch)


def device_name() -> str:
    """The name of CUDA's current device; "" without one."""
    torch = initialised()
    return "" if torch is None else str(torch.cuda.get_device_name())


def initialised() -> Any:
    """The torch module, if it is imported and has created a CUDA context; else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    asked = getattr(cuda, "is_initialized", None)  # missing while torch is being imported
    return sys.modules["torch"] if asked is not None and asked() else None
