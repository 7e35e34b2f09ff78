"""DDP without Ray Train: torchrun starts the ranks, and restarts them when one dies.

    torchrun --nproc-per-node 2 -m training.jobs.ddp_torchrun --run-name digits
    python -m training.jobs.ddp_torchrun --workers 2      # the same; it calls torchrun's launcher

On several hosts that share a storage path, run the same command on each of them:

    torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29400 \\
        --rdzv-id digits -m training.jobs.ddp_torchrun --storage-path /shared --run-name digits

On a Ray cluster (launched by cockpit, or with RAY_ADDRESS set) it runs a torchrun agent on each
node whose CPUs or GPUs it reserves; the agents start the ranks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist

from training.data.examples import NoData
from training.jobs import job
from training.jobs.plain import Plain, end, named, work
from training.loop.world import torchrun
from training.parallel.replicated import replicated
from training.process_stat import stat
from training.settings import parse, setting
from training.stop import Stop
from training.techniques import environment


@dataclass(frozen=True)
class Settings(Plain):
    workers: int = setting(
        2, "ranks to start, one CPU or GPU each; torchrun sets its own number", at_least=1
    )
    epochs: int = setting(20, "passes over the data")


def rank(settings: Settings) -> dict[str, Any]:
    """A process that torchrun started; its environment identifies the rank."""
    try:
        environment.enter(settings)
        world = torchrun(settings.gpu, settings.timeout_s)
        name = world.gather_all(settings.run_name or f"ddp_torchrun-{run_id()}")[0]
        return work(replace(settings, workers=world.size, run_name=name), world, replicated)
    except NoData:  # of this rank alone
        raise
    except Stop as why:
        return {"stopped": str(why)}
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def run_id() -> str:
    """A name that a restarted rank gets again: the rendezvous id, or the agent's start time."""
    if (given := os.environ["TORCHELASTIC_RUN_ID"]) != "none":
        return given
    return stat(os.getppid())[19]  # in clock ticks since the host started


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.ddp_torchrun", job("ddp_torchrun").summary)
    if "LOCAL_RANK" in os.environ:
        end(rank(settings))
        return
    settings = replace(settings, run_name=settings.run_name or named("ddp_torchrun"))
    if "RAY_ADDRESS" in os.environ:
        from training.jobs import on_cluster

        end(on_cluster.run("ddp_torchrun", settings, ranks=settings.workers))
    else:
        from training.jobs.agent import Nodes, start

        end(start(rank, settings, settings.workers, Nodes(settings.run_name)))


if __name__ == "__main__":
    main()
