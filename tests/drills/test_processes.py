"""The requirements of faults on processes, and their errors if one is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import pytest
from msgspec.structs import replace

from cockpit.backends.protocol import ExecResult
from cockpit.drills.engine import pod_script
from cockpit.drills.faults.catalog import fault
from cockpit.drills.faults.fault import Order, Prepared, RankVictim, Victims, parameter_values
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError, NotAllowedError, UsageError
from cockpit.model.event import Event
from cockpit.store.store import Store
from tests.events import ONE, TWO
from tests.simulated_backend import ScriptedBackend

T = TypeVar("T")
KUBE = ClusterRef("kuberay", "demo", "ml", "here")
RANKS = (RankVictim(0, ONE.name, 11), RankVictim(1, TWO.name, 12))
BOTH = Victims((ONE, TWO), RANKS)
PROCESSES = ("rank-kill", "raylet-kill", "rank-freeze", "slow-rank", "gcs-kill", "dashboard-kill")
Answer = Callable[[str, str, tuple[str, ...]], ExecResult]


def answer(pod: str, script: str, terms: tuple[str, ...]) -> ExecResult:
    """A pod whose state the test defines."""
    if script == "inspect":
        return ExecResult(0, "".join(f"{pid}:7\n" for pid in terms[1:]) or "21:7\n", "")
    return ExecResult(0, f"{4 << 30} {1 << 30}\n" if terms == ("measure",) else "done\n", "")


@dataclass(slots=True)
class Pods(ScriptedBackend):
    """Answers each script; `ran` has them as pod, script and arguments."""

    said: Answer = answer
    ran: list[tuple[str, ...]] = field(default_factory=list)
    required: list[tuple[str, str]] = field(default_factory=list)
    """Each pod with the UID that the call requires."""

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        self.required.append((pod, uid))
        scripts = ("inspect", "kill", "stop", "cpu_hog", "memory_hog", "release", "container")
        (script,) = (name for name in scripts if pod_script.argv(name)[2] == argv[2])
        self.ran.append((pod, script, *argv[3:]))
        return self.said(pod, script, tuple(argv[3:]))


@dataclass(frozen=True, slots=True)
class Place:
    backend: Pods

    @property
    def clock(self) -> Callable[[], float]:
        return lambda: 1.0

    async def ask(self, question: Callable[[Store], T]) -> T:
        return question(Store())

    def dispatch(self, event: Event) -> None:
        raise AssertionError(event)


async def prepared(
    name: str, backend: Pods, given: Mapping[str, str] | None = None, victims: Victims = BOTH
) -> Prepared:
    found = fault(name)
    uids = {pod.name: pod.uid for pod in victims.pods}
    order = Order("drill-a.1", parameter_values(found, given or {}), Random(0), uids=uids)
    return await found.prepare(Place(backend), victims, order)


@pytest.mark.parametrize("name", [*PROCESSES, "cpu-hog", "memory-hog", "container-kill"])
async def test_a_right_that_is_missing_is_reported_before_anything_is_done(name: str) -> None:
    def refuse(pod: str, script: str, words: tuple[str, ...]) -> ExecResult:
        raise NotAllowedError("You do not have this permission.", "pods/exec")

    backend = Pods(ref=KUBE, said=refuse)
    with pytest.raises(NotAllowedError):
        await prepared(name, backend)
    assert [call[1] for call in backend.ran] in (["inspect"], ["memory_hog"], ["container"])


@pytest.mark.parametrize("name", [*PROCESSES, "cpu-hog", "memory-hog", "container-kill"])
def test_backend_without_exec_has_no_fault_that_needs_it(name: str) -> None:
    assert fault(name).obstacle("address")
    assert not fault(name).obstacle("kuberay")


@pytest.mark.parametrize("name", ["rank-kill", "rank-freeze", "slow-rank", "memory-hog"])
async def test_rank_that_no_longer_exists_is_named_and_nothing_is_killed(name: str) -> None:
    def one_is_gone(pod: str, script: str, words: tuple[str, ...]) -> ExecResult:
        if script == "inspect" and words[1:] == ("12",):
            return ExecResult(1, "", "process 12 has ended\n")
        return answer(pod, script, words)

    backend = Pods(ref=KUBE, said=one_is_gone)
    with pytest.raises(CockpitError, match=r"Rank 1 .process 12 in pod t-workers-2. is not there"):
        await prepared(name, backend)
    assert {call[1] for call in backend.ran} == {"inspect"}


async def test_a_pod_that_no_longer_exists_is_reported_as_what_is_missing() -> None:
    def gone(pod: str, script: str, words: tuple[str, ...]) -> ExecResult:
        raise UsageError(f"There is no pod {pod!r}.")

    with pytest.raises(CockpitError, match=r"Rank 0 .* is not there") as caught:
        await prepared("rank-kill", Pods(said=gone))
    assert "There is no pod" in caught.value.why


async def test_unexpected_output_of_a_pod_is_reported_on_one_line() -> None:
    def nonsense(pod: str, script: str, words: tuple[str, ...]) -> ExecResult:
        return ExecResult(0, "\x1b[2J\n", "")

    with pytest.raises(CockpitError) as caught:
        await prepared("memory-hog", Pods(ref=KUBE, said=nonsense))
    assert "\x1b" not in str(caught.value)


async def test_each_rank_is_hit_as_it_was_found_even_where_another_was_missed() -> None:
    def first_is_missed(pod: str, script: str, words: tuple[str, ...]) -> ExecResult:
        if script == "kill" and pod == ONE.name:
            return ExecResult(1, "", "ended before it was hit: 11:7\n")
        return answer(pod, script, words)

    backend = Pods(ref=KUBE, said=first_is_missed)
    ready = await prepared("rank-kill", backend)
    assert len(ready.lines) == 2
    backend.ran.clear()
    with pytest.raises(CockpitError, match=ONE.name):
        await ready.apply()
    assert backend.ran == [(ONE.name, "kill", "11:7"), (TWO.name, "kill", "12:7")]


async def test_a_freeze_is_undone_by_what_it_is_held_under() -> None:
    backend = Pods(ref=KUBE)
    ready = await prepared("rank-freeze", backend, {"for_s": "9"})
    await ready.apply()
    held = {(pod, text[0]) for pod, script, *text in backend.ran if script == "stop"}
    assert held == {(undo.pod, undo.argv[-1]) for undo in ready.undo}
    assert len(held) == 2
    assert all(undo.argv[2] == pod_script.argv("release")[2] for undo in ready.undo)
    assert ready.lasts_s == 9


async def test_a_slow_rank_stands_still_for_its_part_of_each_moment() -> None:
    backend = Pods(ref=KUBE)
    await (await prepared("slow-rank", backend, {"fraction": "0.8"})).apply()
    stops = [text for _, script, *text in backend.ran if script == "stop"]
    assert [text[1:4] for text in stops] == [["30", "0.04", "0.01"]] * 2


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("rank-freeze", {"for_s": "0"}),
        ("rank-freeze", {"for_s": "inf"}),
        ("slow-rank", {"fraction": "1"}),
        ("slow-rank", {"fraction": "0"}),
        ("memory-hog", {"percent": "101"}),
        ("memory-hog", {"for_s": "5", "fill_s": "6"}),
    ],
)
async def test_a_value_that_makes_no_sense_is_refused(name: str, given: dict[str, str]) -> None:
    backend = Pods(ref=KUBE)
    with pytest.raises(UsageError):
        await prepared(name, backend, given)
    assert backend.ran == []


async def test_a_local_cluster_has_no_cores_of_one_rank() -> None:
    assert not fault("slow-rank").obstacle("local")
    with pytest.raises(UsageError, match="cores of one rank"):
        await prepared("slow-rank", Pods(), {"by": "hog"})
    for name in ("cpu-hog", "memory-hog", "container-kill"):
        assert fault(name).obstacle("local")


async def test_memory_is_filled_up_to_the_limit_and_the_ranks_die_first() -> None:
    backend = Pods(ref=KUBE)
    ready = await prepared("memory-hog", backend, {"percent": "96"}, Victims((TWO,), RANKS[1:]))
    assert "from 1.00 to 96 % of 4.00 GiB" in ready.lines[0]
    assert "rank 1" in ready.lines[0]
    await ready.apply()
    assert backend.ran[-1] == (TWO.name, "memory_hog", "fill", "drill-a.1", "30", "96", "5", "12:7")


@pytest.mark.parametrize("name", [*PROCESSES, "cpu-hog", "memory-hog", "container-kill"])
async def test_fault_begins_only_in_the_pods_that_were_chosen(name: str) -> None:
    pods = (replace(ONE, uid="uid-1"), replace(TWO, uid="uid-2"))
    backend = Pods(ref=KUBE)
    made = await prepared(name, backend, victims=Victims(pods, RANKS))
    backend.required.clear()
    await made.apply()
    assert sorted(set(backend.required)) == [(ONE.name, "uid-1"), (TWO.name, "uid-2")]
