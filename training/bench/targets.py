"""The performance targets of one GPU, each independent of the model of the GPU.

On a CPU the same is measured with small models, to test the measurement; there are no targets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from training.bench import units
from training.bench.handwritten_loop import plain
from training.bench.loading import INPUT_BOUND
from training.bench.loop import Loop, batch, loaded_steps, same_step
from training.bench.repeated import Quartiles, ratios, spread
from training.bench.section import Finding, Level, Section, Table
from training.bench.settings import BenchSettings
from training.data import load
from training.loop.flops import flops
from training.loop.world import World
from training.models import build
from training.parallel.single_device import whole
from training.telemetry.gpu.gpu import Gpu
from training.telemetry.worker.flops import mfu_percent, peak_flops

RATIO, MFU_PERCENT, UTILIZATION_PERCENT = 1.0, 45.0, 90.0
SAMPLED_EACH_S = 0.5


@dataclass(frozen=True, slots=True)
class Targets:
    device: str
    """Its name."""
    promised: bool
    """Whether it is a GPU."""
    image_model: str
    image_batch: int
    plain_samples_per_s: Quartiles
    ratio: Quartiles
    """The loop's throughput divided by the handwritten one's, for each turn."""
    input_share: float
    """The additional time of a step with loaded batches, compared with one in memory."""
    token_model: str
    token_batch: int
    tokens_per_s: Quartiles
    mfu_percent: float | None
    """None for a device with an unknown peak."""
    utilization_percent: float | None
    """GPU utilisation while the token model trains, by NVML; None if it is not reported."""


def image_settings(settings: BenchSettings, *, on_gpu: bool) -> BenchSettings:
    fast = replace(settings, precision="bf16", channels_last=True, fused=True, accumulate=1)
    fast = replace(fast, optimizer="sgd", clip_norm=0.0, dropout=0.0)
    if not on_gpu:
        return fast
    return replace(
        fast,
        model="resnet50",
        data="synthetic",
        shape="3x224x224",
        classes=1000,
        batch_size=256,
        compile=True,
        loader_workers=max(settings.loader_workers, 8),
    )


def token_settings(settings: BenchSettings, *, on_gpu: bool) -> BenchSettings:
    fast = replace(settings, data="synthetic-tokens", precision="bf16", fused=True, accumulate=1)
    fast = replace(fast, dropout=0.0, examples=1024)
    if not on_gpu:
        return replace(fast, model="gpt-tiny", sequence_length=16, vocabulary=64, batch_size=2)
    return replace(
        fast,
        model="gpt-124m",
        sequence_length=1024,
        vocabulary=50304,  # GPT-2's vocabulary, rounded up to a multiple of 128 as nanoGPT does
        batch_size=32,
        compile=True,
    )


def measure(world: World, settings: BenchSettings) -> Targets:
    """Measure on one rank, with one device."""
    on_gpu = world.device.type == "cuda"
    for_images = image_settings(settings, on_gpu=on_gpu)
    plain_rates, ratio, input_share = of_images(world, for_images)
    for_tokens = token_settings(settings, on_gpu=on_gpu)
    name = torch.cuda.get_device_name(world.device) if on_gpu else "CPU"
    tokens_per_s, flops_per_token, utilization_percent = of_tokens(world, for_tokens)
    return Targets(
        device=name,
        promised=on_gpu,
        image_model=for_images.model,
        image_batch=for_images.batch_size,
        plain_samples_per_s=plain_rates,
        ratio=ratio,
        input_share=input_share,
        token_model=for_tokens.model,
        token_batch=for_tokens.batch_size,
        tokens_per_s=tokens_per_s,
        mfu_percent=mfu_percent(flops_per_token * tokens_per_s.median, peak_flops(name)),
        utilization_percent=utilization_percent,
    )


def of_images(world: World, settings: BenchSettings) -> tuple[Quartiles, Quartiles, float]:
    """Examples per second of the handwritten loop, the ratio to it, and the input-bound share."""
    data = load(settings)
    images, labels = batch(data.train, settings.batch_size, world)
    torch.manual_seed(settings.seed)
    by_hand = plain(
        build(settings, data.shape, data.classes), images, labels, compiles=settings.compile
    )
    by_hand_s, at_hand_s, loaded_s = [], [], []
    with (
        Loop(settings, world, whole, data, same_step(settings, world, data)) as loop,
        Loop(settings, world, whole, data, loaded_steps(settings, world, data)) as loads,
    ):
        for turn in range(settings.rounds + 1):
            taken = [by_hand(settings.turn_steps), loop.turn(settings.turn_steps)]
            taken.append(loads.turn(settings.turn_steps))
            if turn:
                by_hand_s.append(taken[0])
                at_hand_s.append(taken[1])
                loaded_s.append(taken[2])
    examples = settings.turn_steps * settings.batch_size
    input_share = max(0.0, 1 - ratios(at_hand_s, loaded_s).median)
    return spread([examples / s for s in by_hand_s]), ratios(by_hand_s, at_hand_s), input_share


def of_tokens(world: World, settings: BenchSettings) -> tuple[Quartiles, float, float | None]:
    """Tokens per second, the FLOPs of each, and the utilisation of the GPU."""
    data = load(settings)
    model = build(settings, data.shape, data.classes)
    per_example = flops(model, data.held_out.batch(np.arange(1), None))
    del model
    tokens = settings.turn_steps * settings.batch_size * data.shape[0]
    rates = []
    with Loop(settings, world, whole, data, same_step(settings, world, data)) as loop:
        loop.turn(settings.turn_steps)
        with utilization(world) as seen:
            for _ in range(settings.rounds):
                rates.append(tokens / loop.turn(settings.turn_steps))
    busy = spread(seen).median if seen else None
    return spread(rates), per_example / data.shape[0], busy


@contextmanager
def utilization(world: World) -> Iterator[list[float]]:
    """Collect NVML's utilisation of the device during the block, in percent, in a list."""
    seen: list[float] = []
    if world.device.type != "cuda":
        yield seen
        return
    gpu = Gpu((f"GPU-{torch.cuda.get_device_properties(world.device).uuid}",))
    over = threading.Event()

    def poll() -> None:
        while not over.wait(SAMPLED_EACH_S):
            if (percent := gpu.read().utilization_percent) is not None:
                seen.append(percent)

    thread = threading.Thread(target=poll, name="utilization", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def section(result: Targets) -> Section:
    def percent(value: float | None) -> str:
        return "not known" if value is None else f"{value:.1f} %"

    rows = (
        (
            f"{result.image_model} ÷ a plain loop",
            result.ratio.text(units.ratio),
            f"≥ {RATIO}",
        ),
        (
            f"the plain loop, batches of {result.image_batch}",
            result.plain_samples_per_s.text(units.rate),
            "",
        ),
        ("input-bound share", units.share(result.input_share), f"< {INPUT_BOUND:.0%}"),
        (
            f"{result.token_model} tokens, batches of {result.token_batch}",
            result.tokens_per_s.text(units.rate),
            "",
        ),
        ("MFU", percent(result.mfu_percent), f"≥ {MFU_PERCENT:.0f} %"),
        (
            "GPU utilisation",
            percent(result.utilization_percent),
            f"≥ {UTILIZATION_PERCENT:.0f} %",
        ),
    )
    return Section(
        f"Targets on {result.device}",
        "bf16, channels last, fused optimisers, and torch.compile on a GPU; one rank, the loop of "
        "all jobs and that of bench/handwritten_loop.py alternate, medians (quartiles). MFU "
        "counts the model's own FLOPs against the dense bf16 peak.",
        (Table(("measured", "value", "promised of a GPU"), rows),),
        (),
        findings(result),
    )


def findings(result: Targets) -> tuple[Finding, ...]:
    if not result.promised:
        return (
            Finding(Level.NOTE, "No GPU is at hand: nothing is promised of these small models."),
        )
    on = f"on {result.device}"
    found = [
        _met(
            result.ratio.median >= RATIO,
            f"{result.image_model} trains at {result.ratio.median:.3f} of a plain loop's "
            f"throughput {on}",
            "Look at the trace for what the plain loop does not do.",
        ),
        _met(
            result.input_share < INPUT_BOUND,
            f"{units.share(result.input_share)} of a step is there for its data {on}",
            "More loader_workers, up to the cores of the host; pin_memory=true.",
        ),
    ]
    if result.mfu_percent is not None:
        found.append(
            _met(
                result.mfu_percent >= MFU_PERCENT,
                f"{result.token_model} has an MFU of {result.mfu_percent:.1f} % {on}",
                "A larger batch, compile=true, attention=flash or cudnn.",
            )
        )
    if result.utilization_percent is not None:
        found.append(
            _met(
                result.utilization_percent >= UTILIZATION_PERCENT,
                f"The GPU is busy {result.utilization_percent:.0f} % of the time {on}",
                "A larger batch, so that the host keeps ahead of the device.",
            )
        )
    return tuple(found)


def _met(met: bool, text: str, advice: str) -> Finding:
    return Finding(Level.GOOD, f"{text}.") if met else Finding(Level.PROBLEM, f"{text}.", advice)
