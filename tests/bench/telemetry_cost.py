"""What telemetry costs a training loop: `python -m tests.bench.telemetry_cost [--ray]`.

Two measurements. The price of one `telemetry.step` call with a tensor loss, in a tight loop. And
the ratio of pairs of loops of a 5 ms step, with telemetry and without, in alternating order: the
median of the ratios, since a busy machine disturbs single pairs by more than the cost. With --ray
the records go to the real aggregator actor; without, they are pickled and written to the stream
in the same process, which is more work than a rank has.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from training import telemetry
from training.telemetry.aggregator import Aggregator, connect
from training.telemetry.wire import Steps
from training.telemetry.worker import ActorSink, RankTelemetry, Sink

CALL_TARGET_S = 20e-6
RATIO_TARGET = 1.01
STEP_S = 5e-3


class FileSink:
    def __init__(self, path: Path) -> None:
        self._aggregator = Aggregator(path)

    def busy(self) -> bool:
        return False

    def send(self, record: Steps) -> None:
        self._aggregator.push("bench", [pickle.loads(pickle.dumps(record))])

    def drain(self, timeout_s: float) -> None:
        return


def say(loss: torch.Tensor) -> None:
    telemetry.step(
        loss=loss,
        samples=16,
        epoch=1.5,
        learning_rate=1e-3,
        grad_norm=loss,
        data_wait_s=1e-4,
        checkpoint_s=0.0,
    )


def call_s(calls: int = 50_000) -> float:
    """Seconds of one call, the loop's own cost taken off: the best of 5."""
    loss = torch.ones((), requires_grad=True) * 2

    def timed(act: Callable[[torch.Tensor], None]) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            act(loss)
        return (time.perf_counter() - began) / calls

    return min(timed(say) for _ in range(5)) - min(timed(lambda loss: None) for _ in range(5))


def work(size: int) -> Callable[[], torch.Tensor]:
    weights = torch.rand(size, size, requires_grad=True)

    def step() -> torch.Tensor:
        loss = (weights @ weights).mean()
        torch.autograd.backward(loss)
        weights.grad = None
        return loss

    return step


def five_milliseconds() -> tuple[Callable[[], torch.Tensor], float]:
    """A step of about that length on this machine, and how long it is."""
    for size in range(64, 2048, 16):
        step = work(size)
        took = min(loop_s(step, False, 20) for _ in range(3)) / 20
        if took >= STEP_S:
            break
    return step, took


def loop_s(step: Callable[[], torch.Tensor], telling: bool, steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        loss = step()
        if telling:
            say(loss)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ray", action="store_true", help="push to a real aggregator actor")
    parser.add_argument("--pairs", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as directory:
        rank = RankTelemetry(0, 1, sink(arguments.ray, Path(directory)))
        telemetry._rank = rank
        rank.start()
        each = call_s()
        step, step_s = five_milliseconds()
        ratios: list[float] = []
        for pair in range(arguments.pairs):
            order = (True, False) if pair % 2 else (False, True)
            took = {telling: loop_s(step, telling, 200) for telling in order}
            ratios.append(took[True] / took[False])
        rank.flush(1.0)
    low, middle, high = statistics.quantiles(ratios, n=4)
    print("| measure | value | target | |")
    print("|---|---|---|---|")
    verdict = "pass" if each <= CALL_TARGET_S else "FAIL"
    print(f"| one step() call | {each * 1e6:.2f} µs | ≤ {CALL_TARGET_S * 1e6:.0f} µs | {verdict} |")
    share = each / step_s
    verdict = "pass" if share <= RATIO_TARGET - 1 else "FAIL"
    print(f"| its share of a {step_s * 1e3:.1f} ms step | {share:.3%} | ≤ 1 % | {verdict} |")
    verdict = "pass" if middle <= RATIO_TARGET else "FAIL"
    print(
        f"| loop with ÷ without, median of {len(ratios)} pairs of 200 steps (quartiles) "
        f"| {middle:.4f} ({low:.4f}–{high:.4f}) | ≤ {RATIO_TARGET} | {verdict} |"
    )


def sink(on_ray: bool, directory: Path) -> Sink:
    if not on_ray:
        return FileSink(directory / "stream.jsonl")
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False)
    job = ray.get_runtime_context().get_job_id()
    return ActorSink("bench", job, connect(job))


if __name__ == "__main__":
    main()
