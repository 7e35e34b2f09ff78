"""torchrun's agent in this process: it starts ranks, and restarts all of them when one dies."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from training.jobs.plain import Plain
from training.loop.world import device
from training.stop import Stop
from training.techniques import network

S = TypeVar("S", bound=Plain)

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Restarted ranks use a new store for their rendezvous. The agent's store, which torch 2.15 would
use, contains the addresses of the previous ranks: a rank that reads one too early connects to a
dead process.
"""

SHUTDOWN_S = 5
"""How long a rank may take to end after another one ended, before it is killed."""


@dataclass(frozen=True)
class Nodes:
    """The agents of one rendezvous, one for each node."""

    name: str
    count: int = 1
    endpoint: str = "localhost:0"
    """The address of the rendezvous; the first agent listens there."""
    is_first: bool = True
    address: str | None = None
    """This node's address for the others; None: its host name."""


def start(
    rank: Callable[[S], dict[str, Any]], settings: S, ranks: int, nodes: Nodes
) -> dict[str, Any]:
    """Run `rank(settings)` in `count` processes here. Returns the result of the first of them: of
    rank 0, if it runs here; or `{"failed": why}`.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.update(OWN_STORE)
    try:
        device(ranks - 1, settings.gpu)
        network.check(settings.interface, network.interfaces())
    except Stop as why:
        return {"stopped": str(why)}
    with TemporaryDirectory(prefix="torchelastic-") as logs:
        config = LaunchConfig(
            min_nodes=nodes.count,
            max_nodes=nodes.count,
            nproc_per_node=ranks,
            run_id=nodes.name,
            rdzv_backend="c10d",
            rdzv_endpoint=nodes.endpoint,
            rdzv_configs={"is_host": nodes.is_first},
            max_restarts=settings.max_restarts,
            local_addr=nodes.address,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            shutdown_timeout=SHUTDOWN_S,
        )
        try:
            results = elastic_launch(config, rank)(settings)
        except ChildFailedError as error:
            first, failure = error.get_first_failure()
            message: Any = (
                failure.message
            )  # for an exception it is a dict, contrary to its declared type
            line = (message["message"] if isinstance(message, dict) else message).splitlines()[0]
            return {"failed": f"rank {first}: {line}"}
        except RendezvousError as error:
            return {"failed": f"the nodes did not meet at {nodes.endpoint}: {error}"}
    result: dict[str, Any] = results[min(results)]
    return result
