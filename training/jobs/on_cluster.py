"""A job without Ray Train on a Ray cluster: torchrun's agents on its nodes, supervised from here.

Ray provides the CPUs or GPUs, starts an agent on each node that has some of them, and receives the
progress of the run. The ranks are the agents' children. torchrun restarts a rank that dies; when a
node is lost, all agents start again on the remaining nodes.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from training.checkpoint.filesystem import absolute
from training.jobs import SETTINGS, job, missing_resources, network_interface
from training.jobs.agent import Nodes, start
from training.jobs.plain import RESULTS, Plain, directory
from training.stop import Stop
from training.telemetry.gpu.gpu import by_name
from training.telemetry.ray_train.own_driver import DriverTelemetry, is_wanted
from training.telemetry.wire import Worker
from training.telemetry.worker import relay
from training.telemetry.worker.relay import Hello, RankEvent, Relay
from training.telemetry.worker.sender import ActorSink

CHECK_EVERY_S = 0.25
"""Interval of reading the agents' events."""
PLACE_S = 10.0
"""How long recently available resources may take to be available again."""
ANSWER_S = 10.0


def run(name: str, settings: Plain, ranks: int) -> dict[str, Any]:
    """Run the job's `rank` in this number of processes. Returns rank 0's result, or `{"failed":
    why}`.
    """
    if not ray.is_initialized():
        ray.init()
    try:
        where = directory(settings)
        network_interface.check(settings.interface)
    except Stop as why:
        return {"stopped": str(why)}
    settings = replace(settings, storage_path=absolute(settings.storage_path or RESULTS))
    takes = missing_resources.found(settings.gpu, ranks, settings.when_lacking).resource
    settings = replace(settings, gpu="true" if takes == "GPU" else "false")
    run = (settings.run_name, where.filesystem, where.path, settings.max_restarts)
    telemetry = DriverTelemetry(*run) if is_wanted() else None
    result: dict[str, Any] = {}
    for left in range(settings.max_restarts, -1, -1):
        try:
            result = _attempt(name, replace(settings, max_restarts=left), ranks, takes, telemetry)
            break
        except RayActorError as error:
            result = {"failed": f"a node of the run was lost: {str(error).splitlines()[0]}"}
            print(f"{result['failed']}; {left} restarts are left", flush=True)
            if telemetry and left:
                telemetry.lost(result["failed"])
    if telemetry:
        telemetry.ends(result)
    return result


def _attempt(
    name: str, settings: Plain, ranks: int, takes: str, telemetry: DriverTelemetry | None
) -> dict[str, Any]:
    """Raises RayActorError if an agent is lost."""
    if telemetry:
        telemetry.places()
    group, counts = _place(ranks, takes)
    if telemetry:
        telemetry.starts()
    agents = [
        ray.remote(Agent)
        .options(
            num_cpus=count if takes == "CPU" else 0,
            num_gpus=count if takes == "GPU" else 0,
            max_concurrency=2,  # it answers calls while it trains
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
        )
        .remote(name, asdict(settings), count)
        for index, count in enumerate(counts)
    ]
    try:
        address, port = ray.get(agents[0].place.remote())
        audience = (
            TelemetryTarget(telemetry.run, telemetry.job, telemetry.attempts, telemetry.aggregator)
            if telemetry
            else None
        )
        runs = [
            agent.train.remote(
                Nodes(settings.run_name, len(agents), f"{address}:{port}", is_first=not index),
                audience,
            )
            for index, agent in enumerate(agents)
        ]
        return _watch(agents, runs, telemetry)
    finally:
        for agent in agents:
            ray.kill(agent)
        remove_placement_group(group)


def _place(ranks: int, takes: str) -> tuple[PlacementGroup, list[int]]:
    """The placement of the ranks, as one bundle for each node: the number of ranks in each.

    An agent needs the CPUs or GPUs of all its ranks, and an actor gets those of one bundle.
    """
    while True:
        each = placement_group([{takes: 1}] * ranks, strategy="PACK")
        ray.get(each.ready())
        nodes = placement_group_table(each)["bundles_to_node_id"].values()
        counts = [count for _, count in Counter(nodes).most_common()]
        remove_placement_group(each)
        group = placement_group([{takes: count} for count in counts], strategy="STRICT_SPREAD")
        if group.wait(PLACE_S):
            return group, counts
        remove_placement_group(group)


def _watch(
    agents: Sequence[Any], runs: list[Any], telemetry: DriverTelemetry | None
) -> dict[str, Any]:
    results: dict[Any, dict[str, Any]] = {}
    waiting, events = list(runs), AgentEvents(agents)
    while waiting:
        done, waiting = ray.wait(waiting, timeout=CHECK_EVERY_S)
        if telemetry:
            telemetry.on_events(events.take(CHECK_EVERY_S))
            if done:  # asked again, since the last events are from the end of the run
                telemetry.on_events(events.take(ANSWER_S))
        for one in done:
            results[one] = ray.get(one)
            # A rank's result has its number. An agent that did not start keeps the others waiting.
            if "failed" in results[one] or "rank" not in results[one]:
                return results[one]
    return next((result for result in results.values() if result.get("rank", 0) == 0), {})


class AgentEvents:
    """The events of the agents.

    A call takes the events away from its agent, so an answer that is late is waited for, and never
    dropped: each agent has one call at a time.
    """

    def __init__(self, agents: Sequence[Any]) -> None:
        self._idle = list(agents)
        self._calls: dict[Any, Any] = {}
        """By the call, its agent."""

    def take(self, timeout_s: float) -> list[tuple[float, RankEvent]]:
        """Return the events of the agents that answer; the end of its run shows a lost one."""
        self._calls |= {agent.take_events.remote(): agent for agent in self._idle}
        calls = list(self._calls)
        done, _ = ray.wait(calls, num_returns=len(calls), timeout=timeout_s)
        self._idle = [self._calls.pop(call) for call in done]
        events: list[tuple[float, RankEvent]] = []
        for call in done:
            with suppress(RayError):
                events += ray.get(call)
        return events


class TelemetryTarget(NamedTuple):
    """Where an agent sends its telemetry."""

    run: str
    job: str
    """Ray's id of the driver's job."""
    attempts: int
    """The attempts of earlier drivers."""
    aggregator: Any


class Agent:
    """The actor of a node."""

    def __init__(self, name: str, config: dict[str, Any], ranks: int) -> None:
        module = importlib.import_module(job(name).module)
        self._rank, self._settings = module.rank, getattr(module, SETTINGS)(**config)
        self._ranks = ranks
        self._address = ray.util.get_node_ip_address()
        self._relay: Relay | None = None

    def place(self) -> tuple[str, int]:
        """An address for the rendezvous of all agents."""
        with socket.socket() as free:
            free.bind((self._address, 0))
            return self._address, free.getsockname()[1]

    def train(self, nodes: Nodes, audience: TelemetryTarget | None) -> dict[str, Any]:
        # Ray blocks these signals in this thread, and a rank would inherit that: it would end
        # neither on torchrun's request nor when this process is killed.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
        if audience is not None:
            self._relay = self._listen(audience)
            os.environ[relay.VARIABLE] = self._relay.address
        try:
            there = replace(nodes, address=self._address)
            return start(self._rank, self._settings, self._ranks, there)
        finally:
            if self._relay is not None:
                self._relay.close()

    def take_events(self) -> list[tuple[float, RankEvent]]:
        return [] if self._relay is None else self._relay.take()

    def _listen(self, audience: TelemetryTarget) -> Relay:
        run, job_id, attempts, aggregator = audience
        node_id = ray.get_runtime_context().get_node_id()
        gpu_ids = ray.get_gpu_ids()

        def seat(message: Hello) -> Worker:
            own = gpu_ids[message.local_rank : message.local_rank + 1]
            return Worker(
                rank=message.rank,
                node_id=node_id,
                node_ip=self._address,
                pid=message.pid,
                **by_name(own),
            )

        def sink() -> ActorSink:
            return ActorSink(run, job_id, aggregator)

        return Relay(run, seat, lambda: next_attempt(run, attempts), sink, aggregator)


def next_attempt(run: str, before: int) -> int:
    """Counted in the cluster: rank 0 may run on another node each time."""
    from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

    key = f"attempts/{run}/{before}".encode()
    attempt = int(_internal_kv_get(key, namespace=_NAMESPACE) or before) + 1
    _internal_kv_put(key, str(attempt).encode(), overwrite=True, namespace=_NAMESPACE)
    return attempt


_NAMESPACE = b"cockpit"
