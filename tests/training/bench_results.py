"""Results of every part of the benchmark as a measurement could have given them."""

from __future__ import annotations

from typing import Any

from training.bench.batches import Batch, Batches
from training.bench.communication import Communication, Exchange, collective
from training.bench.environment import Environment, Gpu, Host, Interface, Variable
from training.bench.launchers import Launchers
from training.bench.loading import LoaderTimes, Loading
from training.bench.repeated import Quartiles
from training.bench.saving import BACKGROUND, Method, Saving
from training.bench.scaling import APART, STRONG, WEAK, Scaling, points
from training.bench.targets import Targets
from training.bench.techniques import PLAIN, Technique, Techniques, UnavailableTechnique
from training.bench.tracing import Operation, Traced


def steady(value: float, within: float = 0.01) -> Quartiles:
    return Quartiles(value, value * (1 - within), value * (1 + within), 9)


def environment(
    load: float = 0.1, cpus: tuple[str, ...] = ("EPYC",), debug: str = ""
) -> Environment:
    variables = (Variable("NCCL_DEBUG", debug),) if debug else ()
    gpus = (Gpu("NVIDIA H100", 80_000_000_000, "580.1"),)
    hosts = tuple(
        Host(
            f"node-{at}", (at,), cpu, 8, 64_000_000_000, load, "Linux 6", gpus, "",
            (Interface("eth0", 10_000),), variables,
        )
        for at, cpu in enumerate(cpus)
    )  # fmt: skip
    return Environment("3.11", "2.15", "13.2", "9", "2.28", "nccl", "2.60.0", hosts)


def scaling(weak: float, apart: float = 1.0, own_cores: bool = True, ranks: int = 2) -> Scaling:
    """With those efficiencies."""
    rates = {(STRONG, 1): [100.0], (WEAK, 1): [100.0]}
    if ranks > 1:
        rates |= {
            (STRONG, ranks): [100.0 * ranks * weak],
            (WEAK, ranks): [100.0 * ranks * weak],
            (APART, ranks): [100.0 * ranks * apart],
        }
    sizes = dict.fromkeys(rates, 16)
    return Scaling("convnet", "cpu", 1, points(rates, sizes, own_cores=own_cores))


def communication(
    step_s: float, apart_s: float, all_reduce_s: float, ranks: int = 2
) -> Communication:
    exchange = Exchange(1 << 20, steady(step_s), steady(apart_s), steady(all_reduce_s))
    found = tuple(
        collective(operation, size, [size * 1e-9 + 1e-5], ranks)
        for operation in ("all_reduce", "broadcast")
        for size in (4096, 1 << 20, 1 << 26)
    )
    return Communication("gloo", ranks, "convnet", found, exchange)


def loading(load_s: float, both_s: float, compute_s: float = 0.1, workers: int = 2) -> Loading:
    way = LoaderTimes(workers, steady(load_s), steady(both_s), steady(compute_s / both_s))
    return Loading("digits", "convnet", "cpu", 16, steady(compute_s), (way,))


def saving(stall_s: float) -> Saving:
    background = Method(
        f"torch.save, {BACKGROUND}", steady(stall_s), steady(0.2), steady(0.3), 1000, steady(1.0)
    )
    waited = Method(
        "torch.save, waited for", steady(0.5), steady(0.5), steady(0.2), 1000, steady(1.5)
    )
    return Saving("convnet", 2, 900, 45, steady(1.0), (waited, background))


def batches(fp32: dict[int, float], bf16: dict[int, float], most: int = 1 << 16) -> Batches:
    """Examples per second by batch size."""
    found = [("fp32", *item) for item in fp32.items()] + [("bf16", *item) for item in bf16.items()]
    return Batches(
        "convnet", "cpu", 1 << 30, most, tuple(Batch(p, n, rate, n * 1000) for p, n, rate in found)
    )


def techniques(**by_name: Quartiles) -> Techniques:
    """Ratios by name."""
    found = [Technique(PLAIN, steady(100), Quartiles(1, 1, 1, 9))]
    found += [Technique(name, steady(100), ratio) for name, ratio in by_name.items()]
    refused = (UnavailableTechnique("compile", "no C++ compiler"),)
    return Techniques("convnet", "cpu", 2, 16, tuple(found), refused)


def launchers(ratio: Quartiles) -> Launchers:
    return Launchers("convnet", "auto", 2, 16, 20, steady(0.1), steady(0.1), ratio)


def traced(total_s: float = 0.9, device: str = "cuda", named: bool = True) -> Traced:
    operations = (Operation("aten::mm", 3, total_s / 2),) if named else ()
    return Traced(
        "convnet", device, "node-0", 3, total_s, 1.0, "trace.json.gz", "memory.pickle", "",
        operations,
    )  # fmt: skip


def targets(
    ratio: float = 1.01,
    input_share: float = 0.01,
    mfu: float | None = 50.0,
    busy: float | None = 95.0,
    promised: bool = True,
) -> Targets:
    return Targets(
        "NVIDIA H100", promised, "resnet50", 256, steady(2000), steady(ratio), input_share,
        "gpt-124m", 32, steady(400_000), mfu, busy,
    )  # fmt: skip


EVERY: dict[str, Any] = {
    "environment": environment(),
    "scaling": scaling(0.95),
    "communication": communication(0.1, 0.099, 0.02),
    "data": loading(0.01, 0.1),
    "checkpoints": saving(0.01),
    "techniques": techniques(bf16=steady(1.5)),
    "batches": batches({1: 10.0, 2: 19.0}, {1: 20.0, 2: 38.0}),
    "profile": traced(),
    "targets": targets(),
    "launchers": launchers(steady(1.0)),
}
"""By part, as the parts are named; all of it meets its thresholds."""
