"""What runs in the controller for a sooner recovery, without a cluster; the whole is in
tests/backends/test_fast_recovery.py."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import Counter
from copy import deepcopy
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ray = pytest.importorskip("ray")

from training.recovery import (  # noqa: E402
    actors,
    deaths,
    forkserver,
    imports,
    libraries,
    nodes,
    spares,
)
from training.recovery.callback import RecoveryCallback  # noqa: E402
from training.recovery.imports import reserved_memory  # noqa: E402
from training.recovery.nodes import Node  # noqa: E402
from training.recovery.settings import IMPORTS_BYTES, SPARE_MEMORY_BYTES  # noqa: E402


@pytest.mark.parametrize(
    ("wanted", "room"),
    [
        ({"CPU": 1.0}, 4),
        ({"CPU": 1.0, "GPU": 1.0}, 2),
        ({"CPU": 3.0}, 1),
        ({"TPU": 1.0}, 0),
        ({"CPU": 0.0}, 0),
    ],
)
def test_a_node_has_room_for_the_ranks_that_its_scarcest_resource_allows(
    wanted: dict[str, float], room: int
) -> None:
    assert Node("a", "127.0.0.1", 1, {"CPU": 4.0, "GPU": 2.0}).room(wanted) == room


def test_a_node_that_drains_or_whose_raylet_no_longer_exists_is_dying_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as raylet,
        socket.create_server(("127.0.0.1", 0)) as closed,
    ):
        ports = {"well": raylet.getsockname()[1], "drains": raylet.getsockname()[1]}
        ports["gone"] = closed.getsockname()[1]
        closed.close()
        listed = [
            {"NodeID": name, "NodeManagerAddress": "127.0.0.1", "NodeManagerPort": port}
            | {"Alive": True, "Resources": {}}
            for name, port in ports.items()
        ]
        listed.append(listed[-1] | {"NodeID": "known to be dead", "Alive": False})
        monkeypatch.setattr(ray, "nodes", lambda: listed)
        monkeypatch.setattr(ray._private.state.state, "get_draining_nodes", lambda: {"drains": 0})
        asked = {"well", "drains", "gone", "known to be dead"}
        assert nodes.dying(asked) == {"drains", "gone"}
        assert nodes.dying({"well"}) == set()


def test_spares_import_what_is_installed_and_ours_but_no_module_of_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "users_own_module.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("users_own_module")
    names = set(libraries.imported())
    assert {"json", "ray", "training.recovery.spares"} <= names
    assert not {"users_own_module", "__main__", "tests"} & names
    del sys.modules["users_own_module"]


@pytest.mark.parametrize(
    ("resources", "names", "threads"),
    [
        ({"CPU": 3.5}, ["json", "torch", "xgboost", "torch._dynamo"], "3"),
        ({"CPU": 0.5}, ["json", "torch", "xgboost", "torch._dynamo"], "1"),
        ({"GPU": 1.0}, ["json", "torch", "torch._dynamo"], "1"),
    ],
)
def test_libraries_of_ranks_have_rays_threads_and_leave_gpus_alone(
    resources: dict[str, float], names: list[str], threads: str
) -> None:
    found = libraries.of_ranks(["json", "torch", "xgboost"], resources)
    assert found == libraries.Libraries(names, {"OMP_NUM_THREADS": threads}, gently=False)


def test_module_that_cannot_be_imported_is_not_missing_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(imports, "FAILED", set())
    names = ["json", "no.such.module"]
    assert imports.missing(names) == ["no.such.module"]
    imports.import_all(imports.missing(names))
    assert imports.missing(names) == []


def test_spares_that_start_together_take_no_more_memory_than_is_left(tmp_path: Path) -> None:
    left = SPARE_MEMORY_BYTES + 1.5 * IMPORTS_BYTES
    importing = tmp_path / "importing"
    with reserved_memory(importing, lambda: left) as first:
        other = importing / str(os.getppid())  # another process that imports at the same time
        other.touch()
        with reserved_memory(importing, lambda: left) as second:
            assert (first, second) == (True, False)
        other.rename(importing / "4194305")  # above every process id: it has ended
        with reserved_memory(importing, lambda: left - IMPORTS_BYTES) as third:
            assert third
    assert not (importing / str(os.getpid())).exists()


def test_a_ray_that_is_another_leaves_the_run_alone(caplog: pytest.LogCaptureFixture) -> None:
    callback = RecoveryCallback()
    strange: Any = object()
    callback.after_controller_start(strange)
    callback.after_worker_group_training_start(strange)
    callback.after_controller_state_update(strange, strange)
    callback.before_worker_group_shutdown(strange)
    assert "the run continues" in caplog.text


def test_frozen_rank_is_killed_before_ray_waits_for_its_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray.train.v2._internal.exceptions import (
        WorkerHealthCheckFailedError,
        WorkerHealthCheckTimeoutError,
    )
    from ray.train.v2._internal.execution.worker_group import WorkerGroupPollStatus
    from ray.train.v2._internal.execution.worker_group.poll import WorkerStatus

    killed: list[str] = []
    monkeypatch.setattr(ray, "kill", killed.append)
    monkeypatch.setattr(threading, "Thread", lambda **_: type("T", (), {"start": int})())
    workers = [type("Worker", (), {"actor": name, "metadata": None})() for name in "abc"]
    group: Any = type("Group", (), {"get_workers": lambda self: workers})()
    callback = RecoveryCallback()

    def poll(**errors: Exception) -> None:
        found = {
            rank: WorkerStatus(running=True, error=errors.get(name))
            for rank, name in enumerate("abc")
        }
        callback.after_worker_group_poll_status(WorkerGroupPollStatus(found))

    frozen = WorkerHealthCheckTimeoutError("no answer")
    poll(b=frozen)
    assert not killed, "the group has not started"
    for worker in workers:
        worker.metadata = type("Metadata", (), {"node_id": "node"})()
    callback.after_worker_group_training_start(group)
    poll()
    poll(a=WorkerHealthCheckFailedError("died", ValueError()))
    assert not killed
    poll(b=frozen)
    assert killed == ["b"]


def test_a_scripts_own_environment_of_its_ranks_is_not_changed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def started(environment: dict[str, Any], **of_job: Any) -> dict[str, Any]:
        starts(monkeypatch, environment, **of_job)
        return environment

    forked = {"env_vars": spares.HOOK, "py_executable": forkserver.COMMAND}
    assert started({}, working_dir="gcs://a.zip") == forked
    assert started({}, pip=["x"]) == {"env_vars": spares.HOOK}, "it has a Python of its own"
    assert not caplog.records
    assert started({"pip": ["x"]}) == {"pip": ["x"]}
    assert "no spare processes are kept" in caplog.messages[0]
    debugged = {"env_vars": {"NCCL_DEBUG": "INFO"}}
    assert started(debugged) == debugged
    assert caplog.messages[1].endswith("of its own (NCCL_DEBUG)")


def unwrap(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """A test in this process may have changed the method before."""
    method = getattr(owner, name)
    monkeypatch.setattr(owner, name, getattr(method, "__wrapped__", method))


def starts(monkeypatch: pytest.MonkeyPatch, environment: dict[str, Any], **of_job: Any) -> None:
    """The controller starts a run; `environment` is that of its ranks, and is changed."""
    job = type("Context", (), {"runtime_env": of_job})()
    monkeypatch.setattr(ray, "get_runtime_context", lambda: job)
    config = type("RunConfig", (), {"worker_runtime_env": environment})()
    resources = {"CPU": 1.0}
    scaling = type(
        "ScalingConfig",
        (),
        {"elasticity_enabled": False, "_resources_per_worker_not_none": resources},
    )()
    monkeypatch.setattr(libraries, "publish", lambda found: None)
    context = type("Context", (), {"run_config": config, "scaling_config": scaling})()
    RecoveryCallback().after_controller_start(context)


class Started:
    """What a controller sees of nodes on which spares start, and the spares that it asks for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *nodes: str) -> None:
        self.now_s = 0.0
        self.asked, self.known = Counter[str](), spares.Known()
        self.announced = dict[str, list[bool]]()
        listed = [Node(name, "127.0.0.1", 1, {"CPU": 4.0}) for name in nodes]
        listed.append(Node("head", "127.0.0.1", 1, {}))
        monkeypatch.setattr(threading, "Thread", lambda **_: type("T", (), {"start": int})())
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(libraries, "announced", lambda: deepcopy(self.announced))
        monkeypatch.setattr(spares, "alive", lambda: listed)
        monkeypatch.setattr(spares, "_ask", lambda node, env: self.asked.update([node.id]))

    def of_an_attempt(self, *, is_short: bool = False) -> spares.Spares:
        return spares.Spares(
            [object(), object()], {"CPU": 1.0}, self.known, fork=True, is_short=is_short
        )

    @property
    def kept(self) -> Counter[str]:
        return self.known.kept

    def check(self, group: spares.Spares, times: int, *, starts: bool = True) -> None:
        """`starts`: a fork that was asked for has started when the next check comes."""
        for _ in range(times):
            before = self.asked.copy()
            group._check(spares.Loaded("{}", ["torch"]))
            for node in (self.asked - before) if starts else ():
                self.announced.setdefault(node, []).append(True)


def test_each_rank_has_a_spare_at_once_and_a_second_one_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Started(monkeypatch, "a", "b")
    run.announced["b"] = [True, True]  # the ranks themselves
    run.kept["b"] = 1
    group = run.of_an_attempt()
    run.check(group, 5)
    assert run.asked == {"a": 2, "b": 1}
    run.now_s = 31.0
    run.check(group, 5)
    assert run.asked == {"a": 4, "b": 3}
    assert run.kept == {"a": 4, "b": 4}
    run.kept["a"], run.kept["b"] = 1, 3  # a restart has used four
    group = run.of_an_attempt()
    run.check(group, 5)
    assert run.asked == {"a": 5, "b": 3}, "the next attempt begins with one for each rank, too"
    run.now_s = 62.0
    run.check(group, 5)
    assert run.kept == {"a": 4, "b": 4}


def test_next_spare_is_asked_for_when_the_last_one_has_started_or_was_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Started(monkeypatch, "a")
    group = run.of_an_attempt()
    run.check(group, 3, starts=False)
    assert run.asked == {"a": 1}
    run.announced["a"] = [True]
    run.check(group, 3, starts=False)
    assert run.asked == {"a": 2}
    run.now_s = 61.0
    run.check(group, 3, starts=False)
    assert (run.asked, run.kept) == ({"a": 3}, {"a": 2}), "the second request was dropped"
    run.announced["a"] += [True]
    run.check(group, 3)
    assert run.kept == {"a": 4}


def test_node_lacks_a_spare_until_the_one_that_it_was_asked_for_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Started(monkeypatch, "a")
    group = run.of_an_attempt()
    assert run.known.lacks("a")
    run.check(group, 1, starts=False)
    assert run.known.lacks("a")
    run.announced["a"] = [True]
    run.check(group, 1, starts=False)
    assert (run.kept, run.known.lacks("a")) == ({"a": 2}, False), "the second one starts"
    run.known.remove("a")
    assert run.known.lacks("a"), "a rank has started with the first one"
    run.announced["a"].append(True)
    run.check(group, 1, starts=False)
    run.announced["a"].append(True)
    run.check(group, 1)
    assert not run.known.lacks("a")
    for _ in range(2):
        run.known.remove("a")
    assert run.known.lacks("a"), "ranks have started with both"


def test_spares_are_kept_again_when_the_head_answers_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Started(monkeypatch, "a")
    run.known.loaded = spares.Loaded("{}", ["torch"])
    monkeypatch.setattr(libraries, "publish", lambda _: None)
    group, answers = run.of_an_attempt(), iter([False, False, True])

    def answered() -> list[Node]:
        if not next(answers):
            raise ray.exceptions.RpcError("the GCS is away")
        return [Node("a", "127.0.0.1", 1, {"CPU": 4.0})]

    monkeypatch.setattr(spares, "alive", answered)
    ends = iter([*[False] * 5, True])
    monkeypatch.setattr(group._end, "wait", lambda _: next(ends))
    group._run()
    assert run.asked == {"a": 1}
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_later_groups_need_what_the_first_one_has_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Started(monkeypatch, "a")
    imports_of_rank = iter([["torch"], ["torch", "numpy"], ["torch", "numpy"]])
    published: list[libraries.Libraries] = []
    monkeypatch.setattr(ray, "get", lambda _: spares.Loaded("{}", next(imports_of_rank)))
    monkeypatch.setattr(libraries, "publish", published.append)
    for checks in (1, 2, 3):
        group = run.of_an_attempt(is_short=checks == 3)
        group._workers = [type("Worker", (), {"execute_async": lambda self, _: None})()]
        ends = iter([False, False, False, True] if checks == 1 else [False, True])
        monkeypatch.setattr(group._end, "wait", lambda _, ends=ends: next(ends))
        group._run()
        assert len(published) == checks
    assert published[0] == published[1]
    assert published[0].names == published[2].names
    assert [each.gently for each in published] == [True, True, False], "the last one can grow"
    assert run.asked == {"a": 1}, "the spare that was asked for has not started"


def test_request_that_was_dropped_during_a_restart_is_repeated_in_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Started(monkeypatch, "a")
    run.check(run.of_an_attempt(), 1, starts=False)
    run.now_s = 61.0
    run.check(run.of_an_attempt(), 3, starts=False)
    assert (run.asked, run.kept) == ({"a": 2}, {"a": 1})


def test_check_that_a_restart_interrupts_asks_no_further_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Started(monkeypatch, "a", "b")
    group = run.of_an_attempt()

    def ask(node: Node, _: str) -> None:
        run.asked[node.id] += 1
        group.stop()  # the controller does it while the node does not answer

    monkeypatch.setattr(spares, "_ask", ask)
    run.check(group, 1)
    assert run.asked == run.kept == {"a": 1}


def test_ranks_that_do_not_meet_have_used_their_spares() -> None:
    callback = RecoveryCallback()
    callback._has_hook = True
    callback._known.kept.update(a=2, b=1)
    worker = type("Worker", (), {"metadata": type("Metadata", (), {"node_id": "a"})})
    callback.after_worker_group_start(type("Group", (), {"get_workers": lambda self: [worker]})())
    assert callback._known.kept == {"a": 1, "b": 1}


def test_node_without_memory_for_a_fork_server_has_one_spare_for_each_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Started(monkeypatch, "a")
    run.announced["a"] = [False]
    group = run.of_an_attempt()
    run.now_s = 31.0
    for _ in range(6):
        run.check(group, 1, starts=False)
        run.announced["a"].append(False)
    assert run.kept == {"a": 2}


@pytest.mark.parametrize(
    ("kept", "strategy", "left_out"),
    [
        ({"a": 2, "b": 2}, "PACK", "!in(dying,new)"),
        ({"a": 2, "b": 2, "dying": 2}, "SPREAD", "!in(dying,new)"),
        ({"a": 1, "b": 1, "new": 1, "dying": 1}, "PACK", "!in(dying)"),
        ({"a": 2, "dead": 2}, "PACK", ""),
        ({"a": 2, "b": 2}, "STRICT_PACK", ""),
        ({"large": 2}, "STRICT_PACK", "!in(a,b,dying,new)"),
        ({"large": 2}, "STRICT_SPREAD", ""),
        ({"a": 2, "dying": 2}, "PACK", ""),
        ({}, "PACK", ""),
    ],
)
def test_ranks_are_placed_where_spares_are_if_all_find_room_there(
    kept: dict[str, int], strategy: str, left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus = {"a": 1, "b": 1, "new": 1, "dying": 1, "head": 0}
    if "large" in kept:
        cpus["large"] = 2
    listed = [Node(name, "127.0.0.1", 1, {"CPU": float(count)}) for name, count in cpus.items()]
    monkeypatch.setattr(spares, "available", lambda: listed)
    monkeypatch.setattr(spares, "dying", lambda names: {"dying"} & set(names))
    found = spares.placement(kept, {}, {"CPU": 1.0}, 2, strategy)
    assert found == ({"ray.io/node-id": left_out} if left_out else None)


def test_placement_waits_until_the_resources_of_the_last_attempt_are_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = {"a": 0.0, "spare": 1.0}
    times: list[float] = []

    def listed() -> list[Node]:
        return [Node(name, "127.0.0.1", 1, {"CPU": cpus}) for name, cpus in free.items()]

    def sleep(time_s: float) -> None:
        times.append(time_s)
        free.update(new=1.0)
        if len(times) == 3:
            free.update(a=1.0)

    monkeypatch.setattr(spares, "available", listed)
    monkeypatch.setattr(spares, "dying", lambda names: set())
    monkeypatch.setattr(time, "sleep", sleep)
    kept = {"a": 2, "spare": 2}
    found = spares.placement(kept, {"a": 1}, {"CPU": 1.0}, 2, "PACK")
    assert found == {"ray.io/node-id": "!in(new)"}
    assert len(times) == 3
    free.update(a=0.0)
    assert spares.placement(kept, {}, {"CPU": 1.0}, 2, "PACK") is None, "others use it"
    assert len(times) == 3, "and it does not wait for them"


def test_ray_without_the_watcher_of_drains_still_gets_spares(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = "ray.train.v2._internal.callbacks.preemption_callback"
    monkeypatch.delitem(sys.modules, "training.recovery.actors")
    monkeypatch.setitem(sys.modules, name, None)
    environment: dict[str, Any] = {}
    starts(monkeypatch, environment)
    assert environment["env_vars"] == spares.HOOK
    assert "_start_fewer_actors failed; the run continues" in caplog.text


def test_label_selector_of_the_script_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    callback = RecoveryCallback()
    callback._has_hook = True
    asked: list[tuple[Any, ...]] = []

    def placement(*given: Any) -> dict[str, str]:
        asked.append(given)
        return {"x": "y"}

    monkeypatch.setattr(libraries, "hurry", lambda: None)
    monkeypatch.setattr(spares, "placement", placement)
    scaling = ray.train.ScalingConfig(num_workers=2, label_selector={"zone": "a"})
    start = callback.on_controller_start_worker_group
    assert start(scaling_config=scaling, num_workers=2) is None
    assert not asked
    scaling = ray.train.ScalingConfig(num_workers=2, placement_strategy="SPREAD")
    assert start(scaling_config=scaling, num_workers=2) == {"x": "y"}
    assert asked == [(Counter(), Counter(), {"CPU": 1}, 2, "SPREAD")]


class _Worker:
    def __init__(self, rank: int) -> None:
        self.actor = self
        self.metadata = type("Metadata", (), {"node_id": "a"})()
        self.distributed_context = type("Context", (), {"world_rank": rank})()
        self.marked: list[Any] = []
        self.mark_preempt = type("Method", (), {"remote": self.marked.append})


def test_ranks_learn_of_a_drain_without_an_actor_that_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray.train.v2._internal.callbacks.preemption_callback import PreemptionCallback
    from ray.train.v2._internal.execution import preemption

    for name in (actors.START, actors.STOP):
        unwrap(monkeypatch, PreemptionCallback, name)
    for _ in range(2):
        actors.watch_for_drains_here()
    draining: dict[str, int] = {}
    monkeypatch.setattr(preemption, "_get_draining_nodes", lambda: draining)
    monkeypatch.setattr(ray, "nodes", list)
    monkeypatch.setenv("RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S", "0.01")
    ranks = [_Worker(0), _Worker(1)]
    group = type("Group", (), {"get_workers": lambda self: ranks})()
    callback = PreemptionCallback()
    callback.after_worker_group_start(group)
    thread = callback._watcher._monitor_thread
    draining["a"] = 0
    while not ranks[1].marked:
        thread.join(0.01)
    assert [info.preempted_ranks for rank in ranks for info in rank.marked] == [[0, 1]] * 2
    callback.before_worker_group_shutdown(group)
    thread.join()
    assert callback._watcher is None


def test_run_without_data_sets_has_no_manager_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.train.v2._internal.callbacks.datasets import DatasetsCallback

    asked: list[Any] = []
    monkeypatch.setattr(DatasetsCallback, actors.PROVIDE, lambda _, workers: asked.append(workers))
    for _ in range(2):
        actors.provide_no_datasets()
    context = type("Context", (), {"dataset_config": None})()
    given = DatasetsCallback(context, {}).before_init_train_context([1, 2])
    assert not asked
    provider = given["dataset_shard_provider"][1]
    with pytest.raises(KeyError, match="no data set 'train'"):
        provider.get_dataset_shard(type("Info", (), {"dataset_name": "train"})())
    DatasetsCallback(context, {"train": object()}).before_init_train_context([1, 2])
    assert asked == [[1, 2]]


def test_the_variable_of_the_hook_is_the_one_that_ray_reads() -> None:
    from ray._private import ray_constants

    assert set(spares.HOOK) == {ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR}


def test_a_run_outlives_a_rank_that_the_memory_monitor_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that Ray Train raises here ends the run."""
    from ray.exceptions import OutOfMemoryError
    from ray.train.v2._internal.callbacks.backend_setup import BackendSetupCallback

    class Killed:
        def on_shutdown(self, group: Any, config: Any) -> None:
            raise OutOfMemoryError("2 workers were killed\nand more")

    unwrap(monkeypatch, BackendSetupCallback, deaths.HOOK)
    config = type("Config", (), {"backend_cls": Killed})()
    with pytest.raises(OutOfMemoryError):
        BackendSetupCallback(config).before_execution_group_shutdown(None)
    for _ in range(2):
        deaths.bear_at_end()
        BackendSetupCallback(config).before_execution_group_shutdown(None)
    assert caplog.text.count("2 workers were killed") == 2


def test_run_survives_a_rank_that_died_during_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A decision of Ray Train here ends the run."""
    from ray.exceptions import ActorDiedError
    from ray.train import FailureConfig
    from ray.train.v2._internal.execution.failure_handling import FailureDecision, default
    from ray.train.v2.api.exceptions import ControllerError

    retried = tuple(e for e in getattr(default, deaths.RETRIED) if e.__name__ != "RayActorError")
    monkeypatch.setattr(default, deaths.RETRIED, retried)
    policy = default.DefaultFailurePolicy(FailureConfig(max_failures=0))
    died = ControllerError(ActorDiedError())
    assert policy.make_decision(died) is FailureDecision.RAISE
    for _ in range(2):
        deaths.bear_at_start()
        assert policy.make_decision(died) is FailureDecision.RETRY
    assert policy.make_decision(ControllerError(ValueError())) is FailureDecision.RAISE


class SilentRank:
    """A worker group of one rank that answers no poll, and the clock of its controller."""

    POLL_S = 0.5

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from ray.train.v2._internal.execution.worker_group import worker_group

        unwrap(monkeypatch, worker_group.WorkerGroup, deaths.POLL)
        deaths.count_no_stall_of_the_controller()
        self._poll = getattr(worker_group.WorkerGroup, deaths.POLL)
        self.now_s = 100.0
        self.stopped_in_poll_s = 0.0
        monkeypatch.setattr(worker_group, "time_monotonic", lambda: self.now_s)
        monkeypatch.setattr(deaths, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(worker_group, "ray", SimpleNamespace(wait=self._wait))
        self._world_rank_to_ongoing_poll: dict[int, Any] = {}
        self._worker_health_check_timeout_s = 12.0

    def get_workers(self) -> list[str]:
        return ["rank 0"]

    def _get_poll_tasks(self) -> list[str]:
        return ["request"]

    def _wait(
        self, tasks: list[str], *, num_returns: int, timeout: float
    ) -> tuple[list[str], list[str]]:
        self.now_s += timeout + self.stopped_in_poll_s
        self.stopped_in_poll_s = 0.0
        return [], tasks

    def is_frozen(self) -> bool:
        """Whether it is taken for frozen after the next poll."""
        self.now_s += self.POLL_S
        return self._poll(self, self.POLL_S)[0].error is not None

    def polls_until_frozen(self) -> int:
        return next(number for number in count(1) if self.is_frozen())


@pytest.mark.parametrize("during", ["poll", "pause"])
def test_rank_does_not_count_as_frozen_for_time_in_which_the_controller_was_stopped(
    monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    alone = SilentRank(monkeypatch).polls_until_frozen()
    assert alone == 13, "polls end after 0.5, 1.5, … s; more than 12 s count as frozen"
    group = SilentRank(monkeypatch)
    assert not group.is_frozen()
    if during == "poll":
        group.stopped_in_poll_s = 60.0
    else:
        group.now_s += 60.0
    # That round counts like the longest usual one: 1 s, and LATE_S.
    assert group.polls_until_frozen() == alone - 1 - int(deaths.LATE_S)
