"""Batches with timed waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_END: Any = object()


class TimedLoader(Generic[T]):
    """Any loader, unchanged, except that each wait for its next batch is a section."""

    def __init__(
        self, batches: Iterable[T], section: Callable[[], AbstractContextManager[None, None]]
    ) -> None:
        self._batches, self._section = batches, section

    def __iter__(self) -> Iterator[T]:
        with self._section():
            batches = iter(self._batches)
        while True:
            # A default and not StopIteration, which a generator must not let through (PEP 479).
            with self._section():
                batch = next(batches, _END)
            if batch is _END:
                return
            yield batch

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type] # raises if there is none, as it would

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __getattr__(self, name: str) -> Any:
        # `sampler`, `dataset`, `set_epoch` … are the loader's own. Not while it is unpickled.
        if name.startswith("__") or "_batches" not in vars(self):
            raise AttributeError(name)
        return getattr(self._batches, name)
