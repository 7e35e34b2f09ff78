"""A rank's state as one sequence of bytes, which a copy fills without serializing the tensors.

It begins with the length of a pickle, 8 bytes, and the pickle: the states with a `_Place` for each
tensor. The bytes of the tensors follow, each at a multiple of ALIGNED.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)

ALIGNED = 64
_LENGTH_BYTES = 8
_PLAIN = frozenset({bool, int, float, str, type(None)})
_CLASSES = frozenset(
    {
        ("collections", "OrderedDict"),
        ("torch", "Size"),
        (__name__, "_Place"),
    }
)


class NotAShard(ValueError):
    """The bytes are not a shard that `pack` described."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor, or the bytes of a file, begins; relative to the end of the pickle."""

    at: int
    size_bytes: int
    dtype: str
    """'' for the bytes of a file."""
    shape: tuple[int, ...]
    channels_last: bool


@dataclass(frozen=True, slots=True)
class Packed:
    """A description of a shard, and the tensors to copy into it."""

    head: bytes
    places: tuple[_Place, ...]
    sources: tuple[Tensor, ...]
    """By place."""
    size_bytes: int


def pack(states: Mapping[str, Any], instead: Mapping[int, Tensor] | None = None) -> Packed:
    """Describe the shard of these states, a file each, as `rank_part.write` accepts them.

    Tensors are not copied: `copy` does so later. `instead` has by address (`data_ptr`) tensors to
    save in place of those that change before.
    """
    tree = _Tree(instead or {})
    files = {name: tree.file(state) for name, state in states.items()}
    pickled = pickle.dumps(files, protocol=5)
    head = len(pickled).to_bytes(_LENGTH_BYTES, "little") + pickled
    return Packed(head, tuple(tree.places), tuple(tree.sources), _aligned(len(head)) + tree.end)


class Buffer:
    """Memory for shards; its views of the tensors are reused while the tensors keep their form."""

    def __init__(self, memory: Any) -> None:
        """`memory` is writable and has the interface of a buffer."""
        self._memory = memoryview(memory)
        self._of: tuple[int, tuple[_Place, ...]] = (0, ())
        self._views: list[Tensor] = []
        self._pinned_at: int | None = None
        """The address that CUDA knows; 0 if CUDA has refused."""

    @property
    def size_bytes(self) -> int:
        return len(self._memory)

    def pin(self) -> None:
        """Lock its pages, so that a GPU can copy into it; call it while the GPU is current.

        Into other memory, the driver copies in pieces through a buffer of its own, which is slower
        (CUDA C++ Programming Guide, page-locked host memory).
        """
        if self._pinned_at is not None:
            return
        address = torch.frombuffer(self._memory, dtype=torch.uint8).data_ptr()
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        status = cudart.cudaHostRegister(address, len(self._memory), 0)
        self._pinned_at = address if status == cudart.cudaError.success else 0
        if not self._pinned_at:
            log.warning("copies from the GPU into memory are slow: cudaHostRegister: %s", status)

    @torch.no_grad()
    def copy(self, packed: Packed) -> None:
        """Copy the shard. Python's global interpreter lock is free while a tensor is copied.

        Tensors of a GPU are copied by its current stream: they are complete when that is.
        """
        start = _aligned(len(packed.head))
        self._memory[: len(packed.head)] = packed.head
        if self._of != (start, packed.places):
            self._views = [_view(self._memory[start:], place) for place in packed.places]
            self._of = (start, packed.places)
        for view, source in zip(self._views, packed.sources, strict=True):
            view.copy_(source, non_blocking=source.is_cuda)

    def close(self) -> None:
        if self._pinned_at:
            cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            cudart.cudaHostUnregister(self._pinned_at)
        self._views, self._of = [], (0, ())
        self._memory.release()


def unpack(shard: memoryview) -> dict[str, Any]:
    """The states; tensors refer to the memory of the shard. Raises NotAShard."""
    try:
        length = int.from_bytes(shard[:_LENGTH_BYTES], "little")
        if not 0 < length <= len(shard) - _LENGTH_BYTES:
            raise NotAShard(f"its description has {length:,} of {len(shard):,} bytes")
        head = bytes(shard[_LENGTH_BYTES : _LENGTH_BYTES + length])
        files = _Unpickler(BytesIO(head)).load()
        data = shard[_aligned(_LENGTH_BYTES + length) :]
        return {str(name): _filled(tree, data) for name, tree in files.items()}
    except NotAShard:
        raise
    except Exception as error:  # any error of the unpickler and of torch for odd arguments
        raise NotAShard(f"it cannot be read: {error}") from error


class _Tree:
    """The same dicts, lists and tuples with a place for each tensor."""

    def __init__(self, instead: Mapping[int, Tensor]) -> None:
        self.places: list[_Place] = []
        self.sources: list[Tensor] = []
        self.end = 0
        self._instead = instead

    def file(self, state: Any) -> Any:
        if isinstance(state, Path):
            return self._content(memoryview(state.read_bytes()))
        if isinstance(state, memoryview):
            return self._content(state)
        begun = (len(self.places), self.end)
        try:
            return self._without_tensors(state)
        except _OtherClass:  # as those of DeepSpeed: the file's own bytes are kept
            del self.places[begun[0] :], self.sources[begun[0] :]
            self.end = begun[1]
            stream = BytesIO()
            torch.save(state, stream)
            return self._content(stream.getbuffer())

    def _without_tensors(self, state: Any) -> Any:
        if isinstance(state, Tensor):
            return self._tensor(state.detach())
        if isinstance(state, dict):
            return {key: self._without_tensors(value) for key, value in state.items()}
        if type(state) in (list, tuple, torch.Size):
            if _PLAIN.issuperset(map(type, state)):  # in C: a generator has 624 numbers
                return state
            return type(state)([self._without_tensors(value) for value in state])
        if type(state) in _PLAIN:
            return state
        raise _OtherClass

    def _tensor(self, tensor: Tensor) -> _Place:
        if tensor.layout != torch.strided or type(tensor) is not Tensor:
            raise _OtherClass
        tensor = self._instead.get(tensor.data_ptr(), tensor)
        last = (
            tensor.ndim == 4
            and not tensor.is_contiguous()
            and tensor.is_contiguous(memory_format=torch.channels_last)
        )
        name = str(tensor.dtype).removeprefix("torch.")
        return self._placed(tensor, name, tuple(tensor.shape), channels_last=last)

    def _content(self, content: memoryview) -> _Place:
        if not len(content):
            return self._placed(torch.empty(0, dtype=torch.uint8), "", (0,), channels_last=False)
        if content.readonly:
            content = memoryview(bytearray(content))
        source = torch.frombuffer(content, dtype=torch.uint8)
        return self._placed(source, "", (len(source),), channels_last=False)

    def _placed(
        self, source: Tensor, dtype: str, shape: tuple[int, ...], *, channels_last: bool
    ) -> _Place:
        size_bytes = source.numel() * source.element_size()
        place = _Place(self.end, size_bytes, dtype, shape, channels_last)
        self.places.append(place)
        self.sources.append(source)
        self.end += _aligned(size_bytes)
        return place


class _OtherClass(TypeError):
    """A value that is neither plain nor a tensor."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _CLASSES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a shard")


def _filled(tree: Any, data: memoryview) -> Any:
    if isinstance(tree, _Place):
        if not tree.dtype:
            return data[tree.at : tree.at + tree.size_bytes]
        # Each tensor has a storage of its own: torch.save writes the whole storage of a tensor.
        return _view(data, tree)
    if isinstance(tree, dict):
        return {key: _filled(value, data) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        if _PLAIN.issuperset(map(type, tree)):
            return tree
        return type(tree)([_filled(value, data) for value in tree])
    return tree


def _view(data: memoryview, place: _Place) -> Tensor:
    """The tensor at a place. Raises NotAShard if the place is not in the data."""
    dtype = getattr(torch, place.dtype or "uint8", None)
    if not isinstance(dtype, torch.dtype) or not 0 <= place.at <= len(data) - place.size_bytes:
        raise NotAShard(f"a tensor of {place.size_bytes:,} bytes is not in its {len(data):,}")
    if not place.size_bytes:
        return torch.empty(place.shape, dtype=dtype)
    count = place.size_bytes // dtype.itemsize
    flat = torch.frombuffer(data, dtype=dtype, count=count, offset=place.at)
    if not place.channels_last:
        return flat.view(place.shape)
    number, channels, height, width = place.shape
    return flat.view(number, height, width, channels).permute(0, 3, 1, 2)


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
