"""What is found in the answers of the pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.model.cluster import QuotaRoom, Resources
from cockpit.model.new_cluster import NewCluster, NodeRoom, PodsOf
from cockpit.preflight.checks import new_cluster
from cockpit.preflight.checks.clocks import clocks
from cockpit.preflight.checks.placement import ranks_on
from cockpit.preflight.demand import Demand
from cockpit.preflight.facts import Answer, Memory, Room, Storage
from cockpit.preflight.finding import Finding, State, failed, listed, summary
from cockpit.preflight.preflight import findings
from cockpit.preflight.target import Target
from cockpit.preflight.target import target as chosen
from tests.preflight.pods import (
    FACTS,
    GIB,
    GROUP,
    HEAD,
    ONE,
    TWO,
    answers,
    node,
    pod,
    target,
)

JOB = Demand(workers=4, modules=("ray", "torch"), storage="/mnt/shared")


def found(
    name: str,
    demand: Demand = JOB,
    of: Mapping[str, Answer] | None = None,
    where: Target | None = None,
    **how: Any,
) -> list[Finding]:
    """The findings with this name."""
    every = findings(where or target(), demand, answers() if of is None else of, **how)
    return [one for one in every if one.name == name]


def test_a_pod_for_drivers_takes_no_share_of_the_ranks() -> None:
    drivers = pod("drivers", 3)
    nodes = (node(HEAD, 0.0), node(ONE, 4.0), node(TWO, 4.0), node(drivers, 0.0))
    where = target(ONE, TWO, drivers, nodes=nodes)
    ranks = {"head": 0, "one": 3, "two": 3, "drivers": 0}
    assert ranks_on(where, Demand(workers=6, cpus=1.0, spread=True)) == ranks


def test_pods_that_are_as_they_have_to_be_have_no_finding_to_fix() -> None:
    every = list(findings(target(), JOB, answers()))
    assert {one.state for one in every} == {State.OK}, every
    assert not any(one.fix for one in every)
    assert summary(every) == f"Preflight: {len(every)} ok."
    assert {one.name for one in every} >= {
        *("pods", "python", "ray", "torch", "modules", "storage", "storage room", "disk"),
        *("memory", "/dev/shm", "ranks on the head", "room", "clocks"),
    }


@pytest.mark.parametrize(
    ("package", "change", "words"),
    [
        ("python", {"python": "3.12.1"}, "3.12.1 in two; the head has 3.11.9."),
        ("ray", {"versions": {"ray": "2.59.0", "torch": "2.15.0"}}, "2.59.0 in two; the head"),
        ("torch", {"versions": {"ray": "2.60.0", "torch": ""}}, "not installed in two; the head"),
    ],
)
def test_version_that_differs_from_the_heads_is_named_with_its_pods(
    package: str, change: dict[str, Any], words: str
) -> None:
    [one] = found(package, of=answers(two=change))
    assert one.state is State.FAILED
    assert words in one.found
    assert one.pods == ("two",)
    assert "same image" in one.fix


def test_versions_are_compared_with_most_pods_if_the_head_has_not_answered() -> None:
    of = answers(two={"python": "3.9.2"})
    of["head"] = Answer(error="no answer")
    of["three"] = replace(of["one"])
    [one] = found("python", of=of)
    assert one.found == "3.9.2 in two; the other pods have 3.11.9."


def test_missing_module_fails_unless_ray_installs_packages() -> None:
    of = answers(one={"missing": ("torch",)}, two={"missing": ("torch", "einops")})
    [one] = found("module", replace(JOB, modules=("torch",)), of=of)[:1]
    assert (one.state, one.pods) == (State.FAILED, ("one", "two"))
    assert "torch is missing in one and two." in one.found
    assert "--pip torch" in one.fix
    [one] = found(
        "module", replace(JOB, installs="pip: torch"), of=answers(one={"missing": ("torch",)})
    )
    assert (one.state, one.fix) == (
        State.WARNING,
        "Not in the image; it has to come from pip: torch.",
    )


def test_missing_optional_module_is_a_warning() -> None:
    demand = replace(JOB, optional=("einops",))
    [one] = found("module", demand, of=answers(two={"missing": ("einops",)}))
    assert one.state is State.WARNING
    assert "einops missing in two" in one.found


def test_storage_that_a_pod_does_not_see_is_not_shared() -> None:
    of = answers()
    of["two"] = replace(of["two"], unseen=("head", "one"))
    [one] = found("storage", of=of)
    assert one.state is State.FAILED
    assert one.found == (
        "/mnt/shared is not shared: two does not see what head and one wrote (file system nfs4)."
    )
    assert "ReadWriteMany" in one.fix


def test_storage_that_cannot_be_written_is_named_with_the_reason() -> None:
    denied = Storage("/mnt", "ext4", "Permission denied")
    [one] = found("storage", of=answers(one={"storage": denied}))
    assert (one.state, one.pods) == (State.FAILED, ("one",))
    assert "one cannot write to /mnt/shared: Permission denied." in one.found


@pytest.mark.parametrize(
    ("demand", "how", "words"),
    [
        (replace(JOB, storage="gs://bucket/runs"), {}, "is not a folder of the pods"),
        (JOB, {"no_write": "not tried in read-only mode."}, "not tried in read-only mode"),
    ],
)
def test_storage_that_is_not_checked_has_the_reason(
    demand: Demand, how: dict[str, Any], words: str
) -> None:
    [one] = found("storage", demand, **how)
    assert one.state is State.SKIPPED
    assert words in one.found


@pytest.mark.parametrize(("free", "state"), [(50 << 20, State.FAILED), (GIB, State.WARNING)])
def test_little_room_on_storage_is_found(free: int, state: State) -> None:
    full = Storage("/mnt/shared", "nfs4", "", Room("/mnt/shared", 100 * GIB, free))
    [one] = found("storage room", of=answers(one={"storage": full}))
    assert (one.state, one.pods) == (state, ("one",))


def test_disk_that_ray_does_not_write_to_any_more_fails() -> None:
    [one] = found("disk", of=answers(two={"disk": Room("/tmp", 1000 * GIB, 40 * GIB)}))
    assert (one.state, one.pods) == (State.FAILED, ("two",))
    assert "/tmp is 96% full in two." in one.found


def test_full_shared_memory_fails_and_a_small_one_only_with_loaders() -> None:
    [one] = found("/dev/shm", of=answers(one={"shm": Room("/dev/shm", 64 << 20, 1 << 20)}))
    assert (one.state, one.pods) == (State.FAILED, ("one",))
    assert "1.0 MiB of 64.0 MiB free in one." in one.found
    small = answers(one={"shm": Room("/dev/shm", 64 << 20, 64 << 20)})
    [one] = found("/dev/shm", of=small)
    assert one.state is State.OK
    [one] = found("/dev/shm", replace(JOB, loaders=2), of=small)
    assert (one.state, "data loader processes need more" in one.found) == (State.WARNING, True)
    [one] = found("/dev/shm", of=answers(one={"shm": None}))
    assert (one.state, one.found) == (State.FAILED, "missing in one.")


def test_memory_is_checked_for_ranks_and_spares_in_each_pod() -> None:
    # Two ranks fit into a pod by CPU: they need 1 GiB, and their spares as much again.
    for_ranks, for_both = int(1.3 * GIB), int(2.3 * GIB)

    def checked(limit: int, *, spares: bool) -> list[Finding]:
        of = answers(one={"memory": Memory(limit, 0)})
        demand = replace(JOB, spares=spares)
        return found("memory", demand, of=of) + found("memory of spares", demand, of=of)

    [one] = checked(GIB, spares=True)
    assert (one.state, one.pods) == (State.FAILED, ("one",))
    assert "at least 1.0 GiB needed for 2 ranks." in one.found
    [one] = checked(for_ranks, spares=True)
    assert (one.name, one.state, one.pods) == ("memory of spares", State.WARNING, ("one",))
    assert [one.state for one in checked(for_ranks, spares=False)] == [State.OK]
    assert [one.state for one in checked(for_both, spares=True)] == [State.OK]


def test_reserved_memory_of_a_rank_counts() -> None:
    of = answers(two={"memory": Memory(8 * GIB, 2 * GIB)})
    [one] = found("memory", replace(JOB, memory_bytes=4 * GIB), of=of)
    assert (one.state, one.pods) == (State.FAILED, ("two",))


def test_full_pod_without_ranks_and_driver_is_not_judged() -> None:
    full = answers(two={"memory": Memory(16 * GIB, 16 * GIB)})
    nodes = (node(HEAD, 0.0), node(ONE), node(TWO, cpus=0.0))
    [one] = found("memory", replace(JOB, workers=2), of=full, where=target(nodes=nodes))
    assert (one.state, one.found) == (State.OK, "at least 13.2 GiB left")
    unused = target(TWO, nodes=nodes, head=None)
    assert found("memory", of=full, where=unused) == []


def test_pods_without_a_limit_share_the_memory_of_their_host() -> None:
    host = {"memory": Memory(3 * GIB, GIB // 2, "boot-1")}
    [one] = found("memory", replace(JOB, workers=3), of=answers(head=host, one=host, two=host))
    assert one.state is State.FAILED
    assert one.pods == ("head", "one", "two")
    assert "at least 2.5 GiB needed for 3 ranks and the driver." in one.found
    [one] = found("memory", replace(JOB, workers=2), of=answers(head=host, one=host, two=host))
    assert one.state is State.OK


def test_head_that_offers_cpus_may_get_ranks() -> None:
    [one] = found("ranks on the head", where=target(head_cpus=4))
    assert (one.state, one.pods) == (State.WARNING, ("head",))
    assert one.found == "The head offers 4 CPUs: it may get 4 ranks beside the driver."
    assert "num-cpus" in one.fix
    [one] = found("ranks on the head", where=target(nodes=None))
    assert one.state is State.SKIPPED


@pytest.mark.parametrize(
    ("workers", "state", "words"),
    [
        (4, State.OK, "4 ranks fit into 2 worker pods"),
        (6, State.WARNING, "6 ranks, room for 4: the job waits."),
        (9, State.FAILED, "9 ranks with 1 CPU each; the worker groups have room for 8"),
    ],
)
def test_room_is_that_of_now_and_that_of_the_groups_maximum(
    workers: int, state: State, words: str
) -> None:
    [one] = found("room", replace(JOB, workers=workers))
    assert one.state is state
    assert words in one.found
    if workers == 6:
        assert one.fix == "Scale first: cockpit scale workers 3"
    if workers == 9:
        [one] = found("room", replace(JOB, workers=workers), bounded=False)
        assert one.state is State.WARNING, "a cluster without a maximum"


def test_autoscaler_is_expected_to_make_room() -> None:
    where = target(groups=(replace(GROUP, autoscaled=True),))
    [one] = found("room", replace(JOB, workers=6), where=where)
    assert (one.state, one.fix) == (State.WARNING, "")
    assert "autoscaler has to add pods" in one.found


def test_quota_that_allows_too_few_pods_fails() -> None:
    tight = (QuotaRoom("team", "workers", "limits.memory", 1),)
    [one] = found("quota", replace(JOB, workers=8), quotas=tight)
    assert one.state is State.FAILED
    assert one.found == (
        "team allows 1 more pod of group workers (limits.memory); 4 ranks more need room."
    )
    [one] = found("quota", replace(JOB, workers=6), quotas=tight)
    assert one.state is State.OK, "one more pod is enough"
    [one] = found("quota", quotas=tight)
    assert one.state is State.OK, "no more pod is needed"
    [one] = found("quota", quotas=None, no_quotas="you may not list resourcequotas")
    assert (one.state, one.found) == (State.SKIPPED, "you may not list resourcequotas")


def test_gpus_that_a_pod_was_given_but_does_not_see_fail() -> None:
    where = target(pod("one", 1, gpus=2), pod("two", 2, gpus=2))
    [one] = found("GPUs", of=answers(one={"gpus": 2}, two={"gpus": 1}), where=where)
    assert (one.state, one.pods) == (State.FAILED, ("two",))
    assert "two was given 2 GPUs, but sees 1." in one.found
    [one] = found("GPUs", of=answers(one={"gpus": 2}, two={"gpus": 2}), where=where)
    assert (one.state, one.found) == (State.OK, "4 GPUs in the pods")


def test_job_on_gpus_fails_without_any_and_names_pods_whose_ray_has_none() -> None:
    demand = replace(JOB, gpus=1, cpus=0)
    [one] = found("GPUs", demand)
    assert (one.state, "no worker pod offers one" in one.found) == (State.FAILED, True)
    [one] = found("GPUs", demand, of=answers(one={"gpus": 1}))
    assert "one sees GPUs that Ray was not started with." in one.found
    assert found("GPUs") == []


def test_pods_that_are_not_ready_and_a_missing_head_are_reported() -> None:
    listed_pods = (HEAD, ONE, replace(TWO, ready=False))
    [one] = found("pods", where=chosen(listed_pods, (GROUP,)))
    assert (one.state, one.found) == (
        State.WARNING,
        "1 of 2 worker pods ready: others not checked.",
    )
    [one] = found("pods", where=chosen((ONE,), (GROUP,)))
    assert one.state is State.FAILED


def test_only_the_named_groups_are_checked() -> None:
    other = replace(TWO, group="gpu")
    where = chosen((HEAD, ONE, other), (GROUP, replace(GROUP, name="gpu")), only_groups=("gpu",))
    assert [one.name for one in where.pods] == ["head", "two"]
    assert [one.name for one in where.groups] == ["gpu"]


def test_without_exec_the_rest_is_checked_from_what_ray_reports() -> None:
    nodes = tuple(
        replace(node(one), memory_total_bytes=4 * GIB, memory_used_bytes=3 * GIB)
        for one in (HEAD, ONE, TWO)
    )
    every = list(
        findings(target(nodes=nodes), JOB, {}, no_exec="no commands can be run in pods. RBAC.")
    )
    states = {one.name: one.state for one in every}
    assert states["pod probe"] is State.SKIPPED
    assert states["memory"] is State.FAILED
    assert states["room"] is State.OK
    assert "python" not in states


def test_pod_without_an_answer_is_reported_and_the_others_are_checked() -> None:
    of = answers()
    of["two"] = Answer(error="no answer within 3 s")
    [one] = found("pod probe", of=of)
    assert (one.state, one.pods) == (State.WARNING, ("two",))
    assert "could not probe two: no answer within 3 s" in one.found
    assert found("python", of=of)[0].state is State.OK


def timed(began_s: float, sent_s: float, received_s: float) -> Answer:
    facts = replace(FACTS, began_s=began_s, now_s=began_s + 0.01)
    return Answer(facts, "", sent_s, received_s)


@pytest.mark.parametrize(
    ("ahead_s", "took_s", "state"),
    [(0.0, 0.2, State.OK), (5.0, 0.2, State.WARNING), (5.0, 8.0, State.OK)],
    ids=["the same", "ahead", "too slow an answer to be certain"],
)
def test_clocks_differ_only_by_what_is_certain(ahead_s: float, took_s: float, state: State) -> None:
    here = timed(1000.1, 1000.0, 1000.0 + took_s)
    there = timed(1000.1 + ahead_s, 1000.0, 1000.0 + took_s)
    [one] = clocks({"a": here, "b": there})
    assert one.state is state
    if state is State.WARNING:
        assert "b is at least 4.8 s ahead of a." in one.found
    assert list(clocks({"a": here})) == []
    assert list(clocks({"a": here, "b": timed(float("nan"), 1000.0, 1000.2)})) == []


def test_a_jobs_driver_alone_needs_the_head_only() -> None:
    demand = replace(JOB, workers=1, only_head=True)
    where = target(groups=(replace(GROUP, resources=Resources(cpus=0)),))
    assert found("room", demand, where=where) == []
    assert found("ranks on the head", demand, where=where) == []


def test_names_are_listed_and_cut() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed("abcdef") == "a, b, c and 3 more"
    states = [State.OK, State.WARNING, State.FAILED]
    several = [Finding("x", state, "y") for state in states]
    assert summary(several) == "Preflight: 1 ok, 1 warning, 1 failed."
    assert failed(several) == [several[2]]
    assert summary([]) == "Preflight: nothing to check."


def of_new(new: NewCluster, wanted: Demand = JOB) -> dict[str, Finding]:
    return {one.name: one for one in new_cluster.findings(new, wanted)}


WORKERS = PodsOf("workers", 2, 2.0, 8 * GIB, 0.0, 1.0, image="train:1")
NODE = NodeRoom("a", 10.0, 4.0, 64 * GIB, 0.0, ("", "workers"))


def test_new_cluster_with_room_for_all_ranks_is_ok_and_one_with_less_fails() -> None:
    new = NewCluster((PodsOf("", 1, 1.0, GIB, 0.0, image="train:1"), WORKERS), nodes=(NODE, NODE))
    wanted = replace(JOB, workers=2)
    assert {one.state for one in of_new(new, wanted).values()} == {State.OK}
    found = of_new(new, replace(wanted, workers=3))["room"]
    assert (found.state, "have room for 2" in found.found) == (State.FAILED, True)
    grows = replace(new, pods=(replace(WORKERS, most=4),))
    assert of_new(grows, replace(wanted, workers=3))["room"].state is State.WARNING
    narrow = replace(new, nodes=(NODE,))
    found = of_new(narrow, wanted)["node room"]
    assert found.state is State.WARNING
    assert found.found == (
        "The head (1 CPU, 1.0 GiB a pod): 0 of 1 pod fit into the room that other pods leave."
    )


def test_images_without_a_tag_and_objects_that_may_not_be_read_are_named() -> None:
    new = NewCluster((replace(WORKERS, image="registry:5000/train"),), unread=("Secret s3",))
    found = of_new(new, replace(JOB, workers=1))
    assert found["image"].state is State.WARNING
    assert found["image"].found.startswith("registry:5000/train has no fixed tag")
    assert found["objects"].found == "You do not have permission to read Secret s3."
    digest = NewCluster((replace(WORKERS, image="train@sha256:" + "a" * 64),))
    assert of_new(digest)["image"].state is State.OK
