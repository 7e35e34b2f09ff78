"""The random generators of a process: Python's, NumPy's and torch's.

Checkpoints in memory need their states in every step, and few steps use Python's or NumPy's: such a
state, 624 numbers, is read again only after it has changed. Each use of a Mersenne Twister changes
the position in its numbers, or all of the numbers.
"""

from __future__ import annotations

import ctypes
import functools
import random
from typing import Any

import numpy as np
import torch
from numpy.random import mtrand

_WORD_BYTES = 4
_WORDS = 624
_MARK_WORDS = 5
"""The position, and four numbers next to it in memory."""
_Words = ctypes.c_char * (_MARK_WORDS * _WORD_BYTES)


def seed_all(seed: int, rank: int) -> None:
    """Seed the generators: different on each rank, the same in each run."""
    own = int(np.random.SeedSequence((seed, rank)).generate_state(1)[0])
    random.seed(own)
    np.random.seed(own)
    torch.manual_seed(own)


def states() -> dict[str, Any]:
    """Of types that torch.load trusts."""
    return {
        "python": _python.state(),
        "numpy": _numpy.state(),
        "torch": torch.default_generator.get_state(),
        "cuda": torch.cuda.get_rng_state() if _has_cuda() else None,
    }


def restore(saved: dict[str, Any]) -> None:
    random.setstate(saved["python"])
    name, keys, position, has_gauss, gauss = saved["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(saved["torch"])
    if saved["cuda"] is not None and _has_cuda():
        torch.cuda.set_rng_state(saved["cuda"])
    for generator in (_python, _numpy):
        generator.forget()


class _Python:
    def __init__(self) -> None:
        self._generator: Any = random._inst
        # CPython has the position, and then the numbers (`RandomObject` in _randommodule.c).
        self._words = _Words.from_address(id(self._generator) + object.__basicsize__)
        numbers = random.getstate()[1]
        expected = np.array([numbers[-1], *numbers[: _MARK_WORDS - 1]], dtype=np.uint32)
        self._is_known = self._words.raw == expected.tobytes()
        self._read: tuple[bytes, Any, Any] | None = None
        """The mark, the left over normal variate, and the state."""

    def state(self) -> Any:
        words, gauss, before = self._words.raw, self._generator.gauss_next, self._read
        if before and self._is_known and before[0] == words and before[1] == gauss:
            return before[2]
        self._read = words, gauss, random.getstate()
        return self._read[2]

    def forget(self) -> None:
        self._read = None


class _NumPy:
    def __init__(self) -> None:
        self._generator: Any = None
        self._words: Any = None
        self._read: tuple[bytes, Any] | None = None

    def state(self) -> Any:
        generator, before = mtrand.get_bit_generator(), self._read
        if generator is not self._generator:  # it can be replaced
            self._of(generator)
            before = None
        words = self._words.raw if self._words is not None else b""
        # A left over normal variate is no part of the numbers, and its use changes nothing else.
        if before and words and before[0] == words and not before[1][3]:
            return before[1]
        found: Any = np.random.get_state(legacy=True)
        name, keys, *others = found
        self._read = words, (name, keys.tolist(), *others)
        return self._read[1]

    def _of(self, generator: Any) -> None:
        self._generator, self._words = generator, None
        if isinstance(generator, np.random.MT19937):
            # The numbers, and then the position (numpy/random/src/mt19937/mt19937.h).
            end = generator.ctypes.state_address + (_WORDS + 1) * _WORD_BYTES
            words = _Words.from_address(end - ctypes.sizeof(_Words))
            state = generator.state["state"]
            expected = np.array([*state["key"][1 - _MARK_WORDS :], state["pos"]], dtype=np.uint32)
            if words.raw == expected.tobytes():
                self._words = words

    def forget(self) -> None:
        self._read = None


@functools.cache
def _has_cuda() -> bool:
    """Each call of torch's asks the driver."""
    return torch.cuda.is_available()


_python = _Python()
_numpy = _NumPy()
