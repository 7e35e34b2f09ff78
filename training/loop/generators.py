"""The random generators of a process: Python's, NumPy's and torch's.

Checkpoints in memory need their states in every step, and few steps use Python's or NumPy's: such a
state, 624 numbers, is read again only after it has changed. Each use of a Mersenne Twister changes
the position in its numbers, or all of the numbers.
"""

from __future__ import annotations

import ctypes
import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.random import mtrand

_WORD_BYTES = 4
_WORDS = 624
_MARK_WORDS = 5
"""The position, and four numbers next to it in memory."""
_PYTHON: Any = random._inst
"""The generator of the functions of `random`."""
_PYTHON_STATE = id(_PYTHON) + object.__basicsize__
"""CPython has the position, and then the numbers (`RandomObject` in _randommodule.c)."""


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
        "torch": torch.get_rng_state(),
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


class _Generator:
    def __init__(self, read: Callable[[], Any], mark: Callable[[], object]) -> None:
        """`mark` changes with the state; None if it is not known whether it does."""
        self._read, self._mark = read, mark
        self._last: tuple[object, Any] = (None, None)

    def state(self) -> Any:
        mark = self._mark()
        before, state = self._last
        if mark is None or mark != before:
            state = self._read()
            self._last = mark, state
        return state

    def forget(self) -> None:
        self._last = (None, None)


def _python_mark() -> object:
    return (_python_words(), _PYTHON.gauss_next) if _is_cpython() else None


def _python_words() -> bytes:
    return ctypes.string_at(_PYTHON_STATE, _MARK_WORDS * _WORD_BYTES)


@functools.cache
def _is_cpython() -> bool:
    """Whether the generator is in memory as expected."""
    words = random.getstate()[1]
    expected = np.array([words[-1], *words[: _MARK_WORDS - 1]], dtype=np.uint32)
    return type(_PYTHON) is random.Random and _python_words() == expected.tobytes()


def _numpy_mark() -> object:
    generator = mtrand.get_bit_generator()
    # The numbers, and then the position (numpy/random/src/mt19937/mt19937.h).
    if not isinstance(generator, np.random.MT19937) or _has_gauss():
        return None
    end = generator.ctypes.state_address + (_WORDS + 1) * _WORD_BYTES
    return ctypes.string_at(end - _MARK_WORDS * _WORD_BYTES, _MARK_WORDS * _WORD_BYTES)


def _has_gauss() -> bool:
    """Whether a normal variate was left over when the state was read: its use changes nothing
    else. One is left over only after the numbers were used.
    """
    _, state = _numpy._last
    return state is not None and bool(state[3])


def _numpy_state() -> Any:
    name, keys, *others = np.random.get_state(legacy=True)
    return (name, keys.tolist(), *others)


@functools.cache
def _has_cuda() -> bool:
    """Each call of torch's asks the driver."""
    return torch.cuda.is_available()


_python = _Generator(random.getstate, _python_mark)
_numpy = _Generator(_numpy_state, _numpy_mark)
