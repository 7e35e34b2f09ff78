"""A process that runs for days leaves little memory behind."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys, threading
from cockpit.session.memory import set_allocator

if sys.argv[1] == "limited":
    set_allocator()
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


LARGE = """
import ctypes, sys
from cockpit.session.memory import set_allocator

if sys.argv[1] == "set":
    set_allocator()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.free(libc.malloc(20_000_000))
heap = ctypes.CDLL(None).sbrk
heap.restype = ctypes.c_void_p
before = heap(0)
kept = libc.malloc(4_000_000)
print(heap(0) - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="sbrk is the heap of glibc")
def test_large_blocks_stay_out_of_the_heap_after_a_larger_one() -> None:
    def heap_grew_by(how: str) -> int:
        argv = [sys.executable, "-c", LARGE, how]
        return int(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)

    assert heap_grew_by("default") > 0
    assert heap_grew_by("set") == 0


HOLES = """
import ctypes, os
from cockpit.session.memory import set_allocator, trim

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

set_allocator()
libc = ctypes.CDLL(None)
libc.calloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
blocks = [libc.calloc(1, 40_000) for _ in range(500)]
for block in blocks:
    ctypes.memset(block, 1, 40_000)
for block in blocks[:-1]:  # the last one keeps the heap from shrinking
    libc.free(block)
before = resident_bytes()
trim()
print(before - resident_bytes())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is of glibc")
def test_freed_memory_below_a_block_that_stays_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10_000_000


GARBAGE = """
import gc
from cockpit.session.memory import collect_often

gc.set_threshold(50_000, 20, 20)  # as cockpit.cli.main starts
collect_often()
most = 0

class Strip:
    alive = 0

    def __init__(self):
        Strip.alive += 1
        self.itself = self

    def __del__(self):
        Strip.alive -= 1

for _ in range(200):
    shown = [Strip() for _ in range(500)]
    most = max(most, Strip.alive)
print(most)
"""


def test_garbage_of_redraws_does_not_pile_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GARBAGE], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 25_000  # 50,500 with the thresholds of a verb
