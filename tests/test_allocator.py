"""Short-lived threads share two arenas of glibc, and so leave less memory behind."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys, threading
from cockpit.session.allocator import limit_arenas

if sys.argv[1] == "limited":
    limit_arenas()
libc = ctypes.CDLL(None)
barrier = threading.Barrier(8)

def work():
    barrier.wait()
    kept = [bytes(2_000) for _ in range(100)]
    barrier.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
stdout = ctypes.c_void_p.in_dll(libc, "stdout")
libc.malloc_info(0, stdout)
libc.fflush(stdout)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_info is of glibc")
def test_threads_share_two_arenas() -> None:
    def arenas(how: str) -> int:
        argv = [sys.executable, "-c", PROGRAM, how]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return done.stdout.count("<heap nr=")

    assert arenas("default") > 2
    assert arenas("limited") <= 2
