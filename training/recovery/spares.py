"""Spare worker processes: started, and with the run's libraries imported, before they are needed.

Starting the ranks' processes is most of a restart: Python, Ray and torch take 4 to 6 s of CPU for
each, all at the same time. Ray keeps idle processes, gives one to the next actor with the same
runtime environment, and a raylet can be asked to start some (`NodeManagerService.PrestartWorkers`,
the call that Ray itself uses for a new driver). So each node that may run a rank keeps some.

Where it can, a fork server makes them (`training.recovery.forkserver`); otherwise each imports the
libraries itself. A spare ends with its job. Nothing here raises: without spares a run restarts as
Ray does it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc  # type: ignore[import-untyped]
import ray
from ray.exceptions import ActorDiedError
from ray.util.placement_group import NODE_ID_LABEL_KEY

from training.recovery import forkserver, libraries
from training.recovery.imports import import_all, missing, reserved_memory
from training.recovery.nodes import ANSWER_S, Node, alive, available, dying
from training.recovery.settings import (
    CHECK_EVERY_S,
    KEEP_S,
    MAKE_S,
    SECOND_S,
    STARTING_CHECK_S,
)

log = logging.getLogger(__name__)

HOOK = {"__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "training.recovery.spares.preload"}
"""Ray's variable for a function that a worker process calls first (`ray_constants`, Ray 2.60)."""

OWN_PYTHON = frozenset({"conda", "container", "image_uri", "pip", "py_executable", "uv"})
"""Fields of a runtime environment that choose the Python of the ranks themselves."""

FREED_S, FREED_POLL_S = 1.0, 0.02
"""How long a placement waits for the resources of the last attempt; measured: 0.1 s."""

LEFT_OUT = 64
"""Nodes that a label selector names at most: each rank's bundle carries it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Of a rank: its runtime environment as Ray compares it, and the libraries it has imported."""

    runtime_env: str
    names: list[str]


@dataclass(slots=True)
class Known:
    """What the controller knows of the spares of a run, over all of its worker groups."""

    kept: Counter[str] = field(default_factory=Counter)
    """How many each node has, by node id, with those that start."""
    asked: dict[str, tuple[float, int]] = field(default_factory=dict)
    """The nodes that start one: since when, and how many processes had started there before."""
    loaded: Loaded | None = None
    """What rank 0 of an earlier worker group had imported."""

    def lacks(self, node: str) -> bool:
        """Whether the node has no spare that has started."""
        return self.kept[node] <= (node in self.asked)

    def remove(self, node: str) -> None:
        """A rank has started with one, or the request for one was dropped."""
        self.kept[node] = max(0, self.kept[node] - 1)


class Spares:
    """The spares of one worker group, maintained by a thread of the controller."""

    def __init__(
        self,
        workers: Sequence[Any],
        resources: Mapping[str, float],
        known: Known,
        *,
        fork: bool,
        is_short: bool,
    ) -> None:
        """Start, and wait for the ranks' imports if they are not known.

        `resources` are those of one rank. With `fork`, each node forks spares, which costs so
        little that there are two for each rank: a second failure soon after a restart finds some
        too. The second ones come SECOND_S later, because a run that has just started has the most
        to lose. `is_short`: the run has fewer ranks than it may have, so it needs a node that joins
        at once, and that imports at full speed.
        """
        self._workers = workers
        self._resources = dict(resources)
        self._known = known
        self._fork, self._is_short = fork, is_short
        self._started: dict[str, list[bool]] = {}
        """The processes of the run by node: whether each is a fork."""
        self._second_s = time.monotonic() + SECOND_S
        self._has_failed = False
        self._end = threading.Event()
        threading.Thread(target=self._run, name="spares", daemon=True).start()

    def stop(self) -> None:
        """Existing spares are kept for the next attempt."""
        self._end.set()

    def _run(self) -> None:
        while True:
            try:
                self._keep()
                return
            except ActorDiedError:
                if not self._end.is_set():  # a rank that was asked has died, and its group with it
                    log.warning("no spare processes are kept; the run continues", exc_info=True)
                return
            except Exception:  # the GCS does not answer, for example while a head is replaced
                if not self._has_failed and not self._end.is_set():
                    log.warning("spare processes cannot be checked; it is retried", exc_info=True)
                self._has_failed = True
            if self._end.wait(CHECK_EVERY_S):
                return

    def _keep(self) -> None:
        """Until the group has ended."""
        found = self._wait_for_imports()
        while found:
            self._check(found)
            self._has_failed = False
            awaits = self._is_short and self._known.asked
            if self._end.wait(STARTING_CHECK_S if awaits else CHECK_EVERY_S):
                break

    def _wait_for_imports(self) -> Loaded | None:
        """Wait until rank 0 of the first group has imported what it needs; that of a later group
        needs the same. Returns None if the group has ended before.
        """
        before = -1
        while not self._end.wait(CHECK_EVERY_S):
            found = self._known.loaded or ray.get(self._workers[0].execute_async(loaded))
            if self._known.loaded or len(found.names) == before:
                of_ranks = libraries.of_ranks(found.names, self._resources)
                libraries.publish(replace(of_ranks, gently=not self._is_short))
                self._known.loaded = found
                return found
            before = len(found.names)
        return None

    def _check(self, found: Loaded) -> None:
        """Ask each node that lacks a spare for one. A node that joins, such as a replacement, too.

        One after the other on each node: their starts take CPU time, and a raylet may drop a
        request that comes too early.
        """
        nodes = {node.id: node for node in alive() if node.room(self._resources)}
        for name in self._known.asked.keys() - nodes.keys():
            del self._known.asked[name]
        if self._known.asked or nodes.keys() - self._started:
            self._started = libraries.announced()
        may_be_second = self._fork and time.monotonic() >= self._second_s
        for node in nodes.values():
            if self._end.is_set():  # a lost node may not answer, and the next attempt has begun
                return
            if self._is_starting(node):
                continue
            each = 2 if may_be_second and any(self._started.get(node.id, ())) else 1
            wanted = each * min(node.room(self._resources), len(self._workers))
            if wanted <= self._known.kept[node.id]:
                continue
            try:
                _ask(node, found.runtime_env)
            except grpc.RpcError:
                log.debug("node %s does not start a spare process", node.id, exc_info=True)
            else:
                started = len(self._started.get(node.id, ()))
                self._known.asked[node.id] = (time.monotonic(), started)  # first: see `lacks`
                self._known.kept[node.id] += 1

    def _is_starting(self, node: Node) -> bool:
        """Return whether a spare of the node still starts. After MAKE_S it counts as dropped."""
        if node.id not in self._known.asked:
            return False
        asked_s, before = self._known.asked[node.id]
        has_started = len(self._started.get(node.id, ())) > before
        if not has_started and time.monotonic() - asked_s < MAKE_S:
            return True
        del self._known.asked[node.id]
        if not has_started:
            self._known.remove(node.id)
        return False


def placement(
    kept: Mapping[str, int],
    before: Mapping[str, int],
    resources: Mapping[str, float],
    ranks: int,
    strategy: str,
) -> dict[str, str] | None:
    """Return the label selector of all ranks that leaves out the nodes without spares.

    A node that has just joined has none yet: a rank that is placed there imports its libraries
    while the others wait. Nodes that are dying are left out too. The selector names the nodes to
    leave out, so that one that joins later is a choice even if those with spares are lost by then.

    `kept`: spares by node id. `before`: ranks of the last attempt by node id. The GCS takes up to
    FREED_S to count their resources as free, and a node that joins in that time would be chosen: so
    they are waited for. `resources`: of a rank.

    Returns None if there is nothing to leave out, or if the other nodes have too little room for
    all ranks under the placement strategy.
    """
    having = {name for name, count in list(kept.items()) if count}
    having -= dying(having)
    deadline = time.monotonic() + FREED_S
    while True:
        rooms = {node.id: node.room(resources) for node in available()}
        usable = having & rooms.keys()
        if _fit(ranks, [rooms[name] for name in usable], strategy):
            left_out = sorted(name for name in rooms.keys() - having if rooms[name])
            named = f"!in({','.join(left_out)})"
            return {NODE_ID_LABEL_KEY: named} if 0 < len(left_out) <= LEFT_OUT else None
        expected = [max(rooms[name], before.get(name, 0)) for name in usable]
        if not _fit(ranks, expected, strategy) or time.monotonic() > deadline:
            return None
        time.sleep(FREED_POLL_S)


def _fit(ranks: int, rooms: Sequence[int], strategy: str) -> bool:
    """Return whether the ranks fit into nodes; `rooms` is how many each of them can hold."""
    if strategy in ("SPREAD", "STRICT_SPREAD"):
        return sum(room > 0 for room in rooms) >= ranks
    return (max if strategy == "STRICT_PACK" else sum)([0, *rooms]) >= ranks


def loaded() -> Loaded:
    """In a rank."""
    return Loaded(ray.get_runtime_context().get_runtime_env_string(), libraries.imported())


def preload() -> None:
    """In a new worker process, before it takes work: import the run's libraries, and announce it.

    Never raises: Ray ends a process whose hook raises.
    """
    try:
        found, is_fork = libraries.published(), forkserver.FORKED in os.environ
        if found and (names := missing(found.names)):
            directory = forkserver.directory_of(_session())
            if is_fork:  # rank 0 has imported more than the driver
                forkserver.add(directory, names)
            with reserved_memory(directory / forkserver.IMPORTING) as is_reserved:
                if is_reserved:
                    os.environ.update({**found.variables, **os.environ})
                    import_all(names)  # at full speed: it may be a rank that the run waits for
        libraries.announce(is_fork)
    except Exception:
        log.warning("nothing was imported beforehand; the run continues", exc_info=True)


def _session() -> str:
    return str(ray._private.worker._global_node.get_session_dir_path())


def _ask(node: Node, runtime_env: str) -> None:
    """Raises grpc.RpcError if the node does not respond."""
    from ray._private.grpc_utils import init_grpc_channel
    from ray.core.generated import (
        common_pb2,
        node_manager_pb2,
        node_manager_pb2_grpc,
        runtime_environment_pb2,
    )

    request = node_manager_pb2.PrestartWorkersRequest(
        language=common_pb2.Language.PYTHON,
        job_id=bytes.fromhex(ray.get_runtime_context().get_job_id()),
        runtime_env_info=runtime_environment_pb2.RuntimeEnvInfo(serialized_runtime_env=runtime_env),
        keep_alive_duration_secs=KEEP_S,
        num_workers=1,
    )
    with init_grpc_channel(f"{node.address}:{node.port}") as channel:
        stub = node_manager_pb2_grpc.NodeManagerServiceStub(channel)
        stub.PrestartWorkers(request, timeout=ANSWER_S)
