"""CUDA is queried through torch only after the training loop has started to use it."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from training.telemetry.worker import cuda


def test_asking_neither_imports_torch_nor_starts_cuda() -> None:
    program = (
        "import sys; from training.telemetry.worker import cuda;"
        "print(cuda.device(), repr(cuda.device_name()), 'torch' in sys.modules);"
        "import torch; print(cuda.device(), torch.cuda.is_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["None '' False", "None False"], done.stderr


def test_a_torch_that_is_still_being_imported_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert cuda.device() is None


def test_the_installed_torch_has_what_is_asked_of_it() -> None:
    for name in ("is_initialized", "current_device", "set_device", "get_device_name"):
        assert callable(getattr(torch.cuda, name))
    assert callable(torch.cuda.is_current_stream_capturing)
    for name in ("record", "query", "elapsed_time"):
        assert callable(getattr(torch.cuda.Event, name))


def test_the_training_threads_device_is_the_one_that_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered: list[int] = []
    current = [3]
    fake = SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: True,
            current_device=lambda: current[0],
            set_device=entered.append,
            is_current_stream_capturing=lambda: True,
            get_device_name=lambda: "NVIDIA H200",
            Event=lambda enable_timing: ("event", enable_timing),
        )
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    device = cuda.device()
    assert device is not None
    current[0] = 0  # another thread's
    device.enter()
    assert entered == [3]
    made: object = device.event()
    assert made == ("event", True)
    assert device.is_capturing()
    assert cuda.device_name() == "NVIDIA H200"
