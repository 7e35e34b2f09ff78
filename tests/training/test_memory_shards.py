"""The shards of checkpoints in memory: their bytes, their slots, and the choice of a whole step."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from training.checkpoint.memory import need
from training.checkpoint.memory.buffers import BufferCopies
from training.checkpoint.memory.digest import DIGEST_PART_BYTES, digest
from training.checkpoint.memory.holder import Holder
from training.checkpoint.memory.need import Room
from training.checkpoint.memory.sets import Copy, found, whole
from training.checkpoint.memory.shard import Buffer, NotAShard, pack, unpack
from training.checkpoint.memory.slots import SLACK_BYTES, SLOTS, Entry, Slots
from training.connection import Address, NoAnswer, connected
from training.free_memory import free_bytes
from training.stop import Stop

MB = 1 << 20


class Other:
    """Of a library; plain to pickle, and not known to a shard."""


def states() -> dict[str, Any]:
    return {
        "model.pt": OrderedDict(
            weight=torch.randn(3, 5),
            image=torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
            half=torch.randn(7).bfloat16(),
            count=torch.tensor(3),
            none=torch.empty(0),
        ),
        "rank-0.pt": {"python": (3, (1, 2, None), 0.5), "steps": [1, {"a": torch.arange(3)}]},
        "script.py": memoryview(b"print()"),
    }


def test_unpacked_shard_equals_the_states_that_were_packed() -> None:
    saved = states()
    packed = pack(saved)
    memory = bytearray(packed.size_bytes + 100)
    Buffer(memory).copy(packed)
    loaded = unpack(memoryview(memory)[: packed.size_bytes])
    assert bytes(loaded["script.py"]) == b"print()"
    assert loaded["rank-0.pt"]["python"] == saved["rank-0.pt"]["python"]
    assert loaded["rank-0.pt"]["steps"][1]["a"].tolist() == [0, 1, 2]
    for name, tensor in saved["model.pt"].items():
        assert torch.equal(loaded["model.pt"][name], tensor)
        assert loaded["model.pt"][name].stride() == tensor.stride()
        assert loaded["model.pt"][name].dtype == tensor.dtype
    own = loaded["model.pt"]["weight"].untyped_storage().nbytes()
    assert own == 60, "torch.save writes the whole storage of a tensor"


def test_shard_has_the_earlier_value_of_a_tensor_that_changes_before_the_copy() -> None:
    statistics = torch.zeros(4)
    packed = pack({"model.pt": {"mean": statistics}}, {statistics.data_ptr(): torch.ones(4)})
    memory = bytearray(packed.size_bytes)
    Buffer(memory).copy(packed)
    assert unpack(memoryview(memory))["model.pt"]["mean"].tolist() == [1, 1, 1, 1]


def test_copies_of_buffers_have_the_values_of_the_call() -> None:
    norm = nn.BatchNorm2d(3)
    assert norm.num_batches_tracked is not None
    model = nn.Sequential(norm, nn.BatchNorm1d(2))
    model.register_buffer("none", torch.empty(0))
    model.register_buffer("empty", torch.empty(0, 2))
    copies = BufferCopies(model)
    for steps in (1, 2):
        norm(torch.randn(4, 3, 2, 2))
        expected = [buffer.clone() for buffer in model.buffers()]
        copied = dict(copies.copied())
        norm(torch.randn(4, 3, 2, 2))
        found = [
            copied[buffer.data_ptr()] if buffer.numel() else buffer for buffer in model.buffers()
        ]
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert copied[norm.num_batches_tracked.data_ptr()] == 2 * steps - 1


def test_file_with_a_class_of_a_library_is_kept_as_its_bytes() -> None:
    packed = pack({"zero.pt": {"scaler": Other(), "weight": torch.ones(2)}})
    memory = bytearray(packed.size_bytes)
    Buffer(memory).copy(packed)
    content = bytes(unpack(memoryview(memory))["zero.pt"])
    assert content.startswith(b"PK"), "the file that torch.save writes"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        (1 << 60).to_bytes(8, "little") + b"x" * 64,
        len(pickle.dumps({"a": Other()})).to_bytes(8, "little") + pickle.dumps({"a": Other()}),
    ],
)
def test_bytes_that_are_no_shard_are_refused(content: bytes) -> None:
    with pytest.raises(NotAShard):
        unpack(memoryview(bytearray(content)))


def written(slots: Slots, attempt: int, step: int, rank: int = 0) -> None:
    slot = slots.begin(attempt, rank, 64)
    assert slot.entry is None
    slot.entry = Entry(attempt, step, rank, 1, 64, "")


def steps(slots: Slots) -> list[tuple[int, int]]:
    return sorted((entry.attempt, entry.step) for entry in slots.entries())


def test_slot_of_the_two_newest_steps_is_never_written() -> None:
    slots = Slots()
    for step in range(1, 8):
        written(slots, 1, step)
        begun = slots.begin(1, 0, 64)
        assert begun.entry is None
        assert steps(slots)[-2:] == [(1, max(1, step - 1)), (1, step)][-min(step, 2) :]
    assert slots.size_bytes == SLOTS * (64 + SLACK_BYTES)


def test_step_that_an_attempt_resumed_from_is_kept_until_a_newer_one_is_whole() -> None:
    slots = Slots()
    for step in (7, 8, 9):
        written(slots, 1, step)
    slots.keep(1, 8)
    assert steps(slots) == [(1, 8)]
    written(slots, 2, 9)
    written(slots, 2, 10)
    assert steps(slots) == [(1, 8), (2, 9), (2, 10)]
    written(slots, 2, 11)
    assert steps(slots) == [(2, 9), (2, 10), (2, 11)], "all nodes have step 9"
    assert slots.size_bytes == SLOTS * (64 + SLACK_BYTES)


def test_larger_shard_gets_a_larger_slot() -> None:
    slots = Slots()
    for step in (1, 2, 3):
        written(slots, 1, step)
    larger = 64 + SLACK_BYTES + 1
    assert slots.begin(1, 0, larger).capacity == larger + SLACK_BYTES
    assert steps(slots) == [(1, 2), (1, 3)]


def test_shard_that_grows_by_some_bytes_needs_no_more_memory() -> None:
    slots = Slots()
    for step in (1, 2, 3):
        written(slots, 1, step)
    before = slots.size_bytes
    assert slots.begin(1, 0, 64 + 1_300).capacity == 64 + SLACK_BYTES
    assert slots.size_bytes == before


def at(node: str) -> Address:
    return Address("127.0.0.1", 1, b"", node=node)


def test_whole_step_has_a_copy_of_each_rank_on_any_node() -> None:
    def copy(node: str, step: int, rank: int, attempt: int = 1, size: int = 2) -> Copy:
        return Copy(Entry(attempt, step, rank, size, 1, ""), at(node))

    sets = whole(
        [
            copy("a", 8, 0),
            copy("a", 8, 1),
            copy("b", 8, 1),
            copy("a", 9, 0),
            copy("a", 7, 0),
            copy("b", 7, 1, size=3),
            copy("a", 3, 0, attempt=2, size=1),
        ]
    )
    assert [(item.attempt, item.step) for item in sets] == [(2, 3), (1, 8)]
    assert [[one.at.node for one in copies] for copies in sets[1].copies] == [["a"], ["a", "b"]]


def test_node_needs_three_slots_for_its_ranks_and_for_those_it_has_copies_of() -> None:
    nodes = ["a", "a", "b"]
    assert need.peer_of(nodes) == {"a": "b", "b": "a"}
    assert need.bytes_by_node(nodes, [10, 20, 5]) == {"a": 3 * 35, "b": 3 * 35}
    assert need.bytes_by_node(["a"], [10]) == {"a": 30}
    assert need.peer_of(["a", "b", "c"]) == {"a": "b", "b": "c", "c": "a"}


def test_need_is_shown_and_refused_if_a_node_has_less() -> None:
    text = need.checked(["a", "b"], [Room(10 * MB, 900 * MB), Room(0, 800 * MB)])
    assert text == (
        "checkpoints in memory: 3 steps of each shard on its node and on another, "
        "31.5 MB of 943.7 MB free memory"
    )
    with pytest.raises(Stop, match=r"need 314\.6 MB on node b, which has 419\.4 MB free"):
        need.checked(["a", "b"], [Room(100 * MB, 900 * MB), Room(0, 400 * MB)])


KB = 1024


@pytest.mark.parametrize(
    ("limit", "free"), [("max", 4096 * KB - 500 * KB), (str(3000 * KB), 2200 * KB - 150 * KB)]
)
def test_free_memory_is_what_rays_memory_monitor_leaves_of_the_host_or_of_the_container(
    limit: str, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 10000 kB\nMemAvailable: 4096 kB\n")
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{1000 * KB}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {200 * KB}\n")
    monkeypatch.delenv("RAY_memory_usage_threshold", raising=False)
    assert free_bytes(tmp_path / "meminfo", (tmp_path,)) == free
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.3")
    assert free_bytes(tmp_path / "meminfo", (tmp_path,)) == 0


def test_holder_does_not_answer_without_the_token_of_the_run() -> None:
    holder = Holder("a", "127.0.0.1", b"t" * 32)
    try:
        with connected(holder.address):
            pass
        assert found([holder.address]).lost == ()
        other = replace(holder.address, token=b"x" * 32)
        for local in (False, True):
            with pytest.raises(NoAnswer), connected(other, local=local):
                pass
        assert found([other]).lost == (other,)
    finally:
        holder.close()
    assert found([holder.address]).lost == (holder.address,)


def test_a_holder_starts_without_torch() -> None:
    program = "import sys, training.checkpoint.memory.on_ray; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize("size", [DIGEST_PART_BYTES, 2 * DIGEST_PART_BYTES + 1])
def test_digest_depends_on_each_part_and_their_order(size: int) -> None:
    shard = bytearray(size)
    digests = {digest(memoryview(shard))}
    for at in {0, size // 2, size - 1}:
        shard[at] = 1
        digests.add(digest(memoryview(shard)))
        shard[at] = 0
    shard[:2] = b"\x01\x00"
    first = digest(memoryview(shard))
    assert first in digests
    assert len(digests) == 4
    assert digest(memoryview(shard)) == first


class Cudart:
    """CUDA's runtime, in the part that locks memory."""

    def __init__(self, status: str) -> None:
        self.cudaError = SimpleNamespace(success="success")
        self.calls: list[tuple[int, ...]] = []
        self._status = status

    def cudaHostRegister(self, address: int, size: int, flags: int) -> str:
        self.calls.append((address, size, flags))
        return self._status

    def cudaHostUnregister(self, address: int) -> None:
        self.calls.append((address,))


def test_memory_for_a_gpu_is_locked_once_and_unlocked_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cudart = Cudart("success")
    monkeypatch.setattr("torch.cuda.cudart", lambda: cudart)
    memory = bytearray(1024)
    address = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    buffer = Buffer(memory)
    buffer.pin()
    buffer.pin()
    assert cudart.calls == [(address, 1024, 0)]
    buffer.close()
    assert cudart.calls[1:] == [(address,)]


def test_memory_that_cuda_does_not_lock_is_reported_once_and_used_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cudart = Cudart("operation not supported")
    monkeypatch.setattr("torch.cuda.cudart", lambda: cudart)
    packed = pack({"model.pt": {"weight": torch.ones(3)}})
    memory = bytearray(packed.size_bytes)
    buffer = Buffer(memory)
    for _ in range(2):
        buffer.pin()
        buffer.copy(packed)
    buffer.close()
    assert unpack(memoryview(memory))["model.pt"]["weight"].tolist() == [1, 1, 1]
    assert len(cudart.calls) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "copies from the GPU into memory are slow: cudaHostRegister: operation not supported"
    ]
