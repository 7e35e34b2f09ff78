"""torch.compile, applied to a model in place."""

from __future__ import annotations

import os
import shutil
import socket
import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.utils._triton import has_triton

from training.stop import Stop


def compile(model: nn.Module) -> None:
    """At its first call. The names of parameters do not change."""
    model.compile()


def check(device: torch.device) -> None:
    """Raises Stop if this host lacks the requirements of the compiler.

    For a CPU that is a C++ compiler (torch/_inductor/config.py), for a GPU Triton and a C compiler
    (triton/runtime/build.py), for both the headers of Python.
    """
    if device.type == "cuda" and not has_triton():
        raise Stop(
            "compile=true needs Triton, which does not work here: it takes a GPU of compute "
            "capability 7.0 or more and the package triton of this torch; or compile=false"
        )
    lacks = [what for what, there in needs(device).items() if not there]
    if lacks:
        raise Stop(
            f"compile=true needs {' and '.join(lacks)}, and {socket.gethostname()} has none: "
            "install it (in Debian g++ or python3-dev), or train with compile=false"
        )


def needs(device: torch.device) -> dict[str, bool]:
    """The requirements that this host has."""
    if device.type == "cpu":
        compilers, language = [os.environ.get("CXX", "g++")], "a C++ compiler"
    else:
        compilers, language = [os.environ.get("CC", "gcc"), "clang"], "a C compiler"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return {language: any(map(shutil.which, compilers)), "Python.h": headers.exists()}
