"""Simulate a run of many ranks: `python simulated_ranks.py RANKS [SECONDS]`, as a job.

The aggregator is the real one; in place of the ranks one process gives it what they would, at
1 Hz. Their numbers wander as real ones do, and one rank is a straggler.
"""

from __future__ import annotations

import math
import random
import sys
import time

from training.telemetry.wire import Steps

RUN, NAME = "a1a1a1a1", "played"
STEPS_PER_S = 20
STRAGGLER = 7


def main() -> None:
    import ray

    from training.telemetry.head.aggregator import connect
    from training.telemetry.wire import AttemptStart, Run, Worker

    ranks = int(sys.argv[1])
    until_s = time.time() + float(sys.argv[2]) if len(sys.argv) > 2 else math.inf
    ray.init()
    job = ray.get_runtime_context().get_job_id()
    aggregator = connect(job)
    node = ray.get_runtime_context().get_node_id()
    workers = tuple(
        Worker(rank=rank, node_id=node, node_ip=f"10.0.{rank // 2000}.{rank // 8 % 250}", pid=rank)
        for rank in range(ranks)
    )
    for body in (
        Run(run=RUN, name=NAME, state="INITIALIZING", job=job, world_size=ranks),
        AttemptStart(run=RUN, attempt=1, workers=workers),
        Run(run=RUN, name=NAME, state="RUNNING", job=job, world_size=ranks),
    ):
        ray.get(aggregator.write.remote(time.time(), body))
    second = 0
    began = time.time()
    while time.time() < until_s:
        second += 1
        time.sleep(max(0.0, began + second - time.time()))
        records = tuple(record(rank, second, time.time()) for rank in range(ranks))
        ray.get(aggregator.push.remote(RUN, records))


def record(rank: int, second: int, now_s: float, attempt: int = 1) -> Steps:
    step = second * STEPS_PER_S
    slow = 1.3 if rank == STRAGGLER else 1.0
    wave = math.sin(rank + second / 7)
    return Steps(
        rank=rank,
        attempt=attempt,
        t=now_s - random.random() * 0.2,
        step=step,
        first_step=step - STEPS_PER_S + 1,
        steps_total=step,
        epoch=step / 2_000,
        loss=2.5 * math.exp(-step / 20_000) + 0.05 * random.random(),
        samples_per_s=640 + 20 * wave,
        tokens_per_s=32_000 + 900 * wave,
        step_time_s=0.05 + 0.001 * wave,
        data_wait_s=0.002 + 0.0005 * random.random(),
        comm_s=(0.010 + 0.001 * wave) / slow**4,
        forward_s=0.012 * slow,
        backward_s=0.021 * slow,
        optimizer_s=0.003,
        mfu_percent=41 + 2 * wave,
        learning_rate=3e-4,
        grad_norm=1.0 + 0.1 * random.random(),
        cpu_percent=100 + 5 * wave,
        memory_bytes=int(4e9 + 1e7 * wave),
        gpu_utilization_percent=93 + 5 * wave,
        gpu_memory_bytes=int(97e9 + 1e9 * wave),
        gpu_memory_total_bytes=int(141e9),
        gpu_power_w=610 + 40 * wave,
        gpu_temperature_c=61 + rank % 8,
        gpu_clock_mhz=1980,
        gpu_throttle="",
        gpu_ecc_errors=0,
        gpu_nvlink_rx_bytes_per_s=1.2e11,
        gpu_nvlink_tx_bytes_per_s=1.2e11,
        gpu_pcie_rx_bytes_per_s=4.0e9,
        gpu_pcie_tx_bytes_per_s=1.0e9,
    )


if __name__ == "__main__":
    main()
