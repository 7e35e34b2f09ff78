"""Unsupported settings are errors before the model is built; ineffective ones are reported."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import torch

from training.loop.settings import TrainSettings
from training.loop.world import World, alone
from training.stop import Stop
from training.techniques import attention, compiled, limits

CPU = torch.device("cpu")


def test_default_settings_are_available_and_print_nothing() -> None:
    limits.check(TrainSettings(), alone("false"))
    assert limits.without_effect(TrainSettings(), alone("false")) == []


def test_a_compiler_that_is_not_there_is_missed_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(Stop, match=r"compile=true needs a C\+\+ compiler.* or train with compile="):
        limits.check(TrainSettings(compile=True), alone("false"))
    (tmp_path / "my-c++").touch(0o755)
    monkeypatch.setenv("CXX", "my-c++")
    assert compiled.needs(CPU)["a C++ compiler"]


def test_pythons_headers_are_missed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(Stop, match=r"Python\.h, and .* has none: install it"):
        compiled.check(CPU)


def test_a_kernel_that_a_cpu_has_not_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(Stop) as reported:
        limits.check(TrainSettings(model="gpt-tiny", attention="cudnn"), alone("false"))
    assert str(reported.value) == (
        "attention=cudnn does not compute fp32 with dropout=0 on a cpu here: "
        "flash, math can, and auto takes the best of them"
    )
    with pytest.raises(Stop, match=r"flash does not compute fp32 with dropout=0\.1 on a cpu"):
        attention.check("flash", CPU, "fp32", 0.1)


def test_to_try_a_kernel_draws_from_no_generator() -> None:
    before = torch.get_rng_state()
    attention.check("math", CPU, "bf16", 0.5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["flash", "math"])
def test_the_kernel_that_is_asked_for_is_the_one_that_runs(name: str) -> None:
    made = torch.ones(1, 2, 8, 16)
    with attention.kernel(name), torch.profiler.profile() as profile:
        torch.nn.functional.scaled_dot_product_attention(made, made, made)
    ran = " ".join(event.key for event in profile.key_averages())
    assert ("flash_attention" in ran) == (name == "flash")
    assert ("attention_math" in ran) == (name == "math")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (TrainSettings(precision="tf32"), "precision=tf32 is of NVIDIA GPUs since Ampere"),
        (TrainSettings(memory_fraction=0.5), "memory_fraction is of a GPU's memory"),
        (TrainSettings(allocator="backend:native"), "allocator is of a GPU's memory"),
        (TrainSettings(nccl_algorithm="ring"), "CPUs use gloo"),
        (TrainSettings(comm_hook="bf16"), "comm_hook: of what ranks send each other"),
        (TrainSettings(bucket_mb=1, static_graph=True), "bucket_mb, static_graph: of what"),
        (TrainSettings(model="resnet18", dropout=0.5), "dropout=0.5: resnet18 has none"),
        (TrainSettings(attention="flash"), "attention=flash: convnet has none"),
        (TrainSettings(model="gpt-tiny", channels_last=True), "gpt-tiny takes no images"),
    ],
)
def test_a_switch_without_effect_is_named(settings: TrainSettings, said: str) -> None:
    (sentence,) = limits.without_effect(settings, alone("false"))
    assert sentence.startswith("without effect here: ")
    assert said in sentence


def test_between_ranks_a_hook_has_an_effect() -> None:
    two = World(0, 2, 0, CPU)
    sent = TrainSettings(comm_hook="bf16", hierarchical=2)
    assert limits.without_effect(sent, two) == []
    (text,) = limits.without_effect(sent, two, uses_ddp=False)
    assert "comm_hook, hierarchical: " in text
