"""The verdict on each labelled end of the corpus, and what makes it sure or unsure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from cockpit.drills.faults.catalog import NAMES
from cockpit.insight.causes.rules import ADVICE, DRILLS, RULES, match
from cockpit.insight.causes.types import Advice, Category, Confidence
from cockpit.insight.causes.verdict import causes_of_run, newest_cause
from cockpit.model.cluster import KubernetesNode
from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    DrillInjected,
    Event,
    KubernetesNodesListed,
    LogExcerpted,
    NodesListed,
)
from cockpit.model.run import RunState
from cockpit.store.store import Store
from tests.causes import corpus
from tests.causes.corpus import (
    DIED,
    ENDED_S,
    GLOO,
    RANKS,
    RUN,
    T0,
    TEXTS,
    Case,
    attempt,
    event,
    job,
    started,
    state,
    verdict,
)


def is_right(case: Case) -> bool:
    category = verdict(case).category
    return category is case.category or (case.may_be_unknown and category is Category.UNKNOWN)


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
def test_each_end_gets_its_cause(case: Case) -> None:
    found = verdict(case)
    assert is_right(case), found
    if case.ranks is not None and found.category is not Category.UNKNOWN:
        assert found.ranks == case.ranks, found


def test_unexplained_ends_are_of_low_confidence() -> None:
    unsure = [case for case in TEXTS if case.may_be_unknown or case.category is Category.UNKNOWN]
    assert {verdict(case).confidence for case in unsure} == {Confidence.LOW}


@pytest.mark.parametrize("case", corpus.UNKNOWN_ERRORS, ids=lambda case: case.name)
def test_exceptions_without_a_rule_of_their_own_are_unsure(case: Case) -> None:
    assert verdict(case).confidence is Confidence.LOW


def test_corpus_has_every_category_and_every_fault_that_ends_an_attempt() -> None:
    assert {case.category for case in TEXTS} == set(Category)
    slowing = {"slow-rank", "dashboard-kill", "cpu-hog", "network-delay", "network-rate"}
    hit = {
        one.drill.fault for case in TEXTS for one in case.events if isinstance(one, DrillInjected)
    }
    assert hit | slowing == set(NAMES) == set(DRILLS)


def test_victim_never_stands_before_a_known_cause() -> None:
    case = Case(
        "x",
        Category.NODE,
        attempt(f"ranks 0: {GLOO}", corpus.nodes(1, "health check failed")),
    )
    found = verdict(case)
    assert (found.category, found.ranks, found.pod, found.node) == (
        Category.NODE,
        (1,),
        "w-1",
        "m-1",
    )
    assert found.evidence[-1].startswith("victim, Ray Train: ranks 0: lost a peer")


def test_node_that_was_dead_when_first_seen_is_a_cause_of_medium_confidence() -> None:
    reason = "rank 1: ActorUnavailableError: The actor is unavailable: Connection reset by peer"
    dead = [replace(corpus.nodes(1, "received SIGTERM"), at_s=T0)]
    events = [one for one in attempt(reason) if not isinstance(one, NodesListed)]
    found = verdict(Case("x", Category.NODE, (*dead, *events)))
    assert (found.category, found.ranks, found.confidence) == (
        Category.NODE,
        (1,),
        Confidence.MEDIUM,
    )
    assert found.quote == "received SIGTERM"


def offers(at_s: float, gpus: float) -> KubernetesNodesListed:
    """The node of rank 1, which has 8 GPUs."""
    node = KubernetesNode("m-1", ready=True, gpus=gpus, gpus_withdrawn=8.0 - gpus)
    return KubernetesNodesListed(at_s=at_s, source="backend", nodes=(node,))


CUDA = "rank 1: RuntimeError: CUDA error: unspecified launch failure"


def test_gpu_that_kubernetes_withdrew_near_the_end_is_the_cause() -> None:
    events = attempt(CUDA, offers(T0, 8.0), offers(ENDED_S - 3, 7.0))
    found = verdict(Case("x", Category.GPU, events))
    assert (found.category, found.confidence) == (Category.GPU, Confidence.HIGH)
    assert (found.ranks, found.node, found.since_s) == ((1,), "m-1", ENDED_S - 3)
    assert found.sentence == "Rank 1 on w-1 lost a GPU, which Kubernetes withdrew."
    assert (found.quoted_from, found.quote) == ("K8s node", "node m-1: 1 of 8 GPUs withdrawn")


@pytest.mark.parametrize(
    ("listed", "confidence"),
    [
        # The device plugin may have ended: all of its GPUs are withdrawn then.
        ((offers(T0, 8.0), offers(ENDED_S - 3, 0.0)), Confidence.MEDIUM),
        # It was so in the first list, after the end: since when is not known.
        ((offers(ENDED_S + 60, 7.0),), Confidence.LOW),
    ],
)
def test_withdrawn_gpu_of_less_certain_meaning(
    listed: tuple[Event, ...], confidence: Confidence
) -> None:
    found = verdict(Case("x", Category.GPU, (*attempt(f"rank 1: {DIED}"), *listed)))
    assert (found.category, found.confidence) == (Category.GPU, confidence)


@pytest.mark.parametrize(
    "listed",
    [
        (offers(T0, 7.0),),
        (offers(T0, 8.0), offers(ENDED_S + 600, 7.0)),
        (offers(T0, 7.0), offers(ENDED_S - 3, 7.0)),
        (offers(T0, 7.0), offers(ENDED_S - 3, 8.0)),
    ],
    ids=["before", "long after", "unchanged", "restored"],
)
def test_gpu_that_was_withdrawn_at_another_time_is_no_cause(listed: tuple[Event, ...]) -> None:
    """The attempt began without it."""
    found = verdict(Case("x", Category.KILLED, (*listed[:1], *attempt(f"rank 1: {DIED}"), *listed)))
    assert found.category is Category.KILLED


def test_standard_error_of_a_rank_shows_that_it_crashed() -> None:
    lines = (
        ":actor_name:RayTrainWorker",
        "*** SIGSEGV received at time=1795442717 on cpu 0 ***",
        "PC: @ 0x7fbff8b85ad8 (unknown) (unknown)",
        "Fatal Python error: Segmentation fault",
        'File "fails.py", line 83 in crash',
    )
    read = LogExcerpted(
        at_s=ENDED_S + 5,
        source="failures",
        job_id=corpus.JOB,
        log="log of rank 1",
        lines=lines,
        run_id=RUN,
        attempt=1,
        rank=1,
    )
    found = verdict(Case("x", Category.KILLED, attempt(f"rank 1: {DIED}", read)))
    assert (found.sentence, found.quoted_from) == ("Rank 1 on w-1 crashed.", "log of rank 1")
    assert found.quote == "*** SIGSEGV received at time=1795442717 on cpu 0 ***"


def test_first_of_equal_clues_in_time_is_the_cause() -> None:
    first = replace(event("w-1", "Evicted", "first"), at_s=ENDED_S - 9)
    second = replace(event("w-0", "Evicted", "second"), at_s=ENDED_S - 1)
    found = verdict(Case("x", Category.PREEMPTED, attempt(f"rank 0: {DIED}", second, first)))
    assert (found.quote, found.pod, found.since_s) == ("Evicted: first", "w-1", ENDED_S - 9)


def test_disagreeing_clues_are_of_low_confidence() -> None:
    disk = event("w-1", "Evicted", "The node was low on resource: ephemeral-storage.")
    memory = event("w-1", "OOMKilling", "Memory cgroup out of memory: Killed process 101")
    found = verdict(Case("x", Category.STORAGE, attempt(f"rank 1: {DIED}", disk, memory)))
    assert (found.category, found.confidence) == (Category.HOST_MEMORY, Confidence.LOW)


def test_lost_node_does_not_contradict_what_led_to_it() -> None:
    disk = event("w-1", "Evicted", "The node was low on resource: ephemeral-storage.")
    removed = event("w-1", "NodeNotReady", "Node m-1 status is now: NodeNotReady")
    found = verdict(Case("x", Category.STORAGE, attempt("rank 1: its node died", disk, removed)))
    assert (found.category, found.confidence) == (Category.STORAGE, Confidence.HIGH)


def test_drill_elsewhere_does_not_hide_an_exception() -> None:
    found = verdict(
        Case("x", Category.USER, attempt("rank 0: ValueError: no", corpus.drill("rank-kill")))
    )
    assert found.category is Category.USER
    assert any("drill" in line for line in found.evidence)


def test_clue_long_before_the_end_does_not_count() -> None:
    old = replace(event("w-1", "OOMKilling", "Memory cgroup out of memory"), at_s=ENDED_S - 3600)
    long = [replace(one, at_s=ENDED_S - 7200) for one in started()]
    found = verdict(
        Case("x", Category.KILLED, (*long, old, *attempt(f"rank 1: {DIED}")[len(long) :]))
    )
    assert found.category is Category.KILLED


def attempts(*reasons: str, swapped: Sequence[int] = ()) -> Store:
    """`swapped`: the attempts whose ranks are on each other's nodes."""
    store = Store()
    for one in started():
        store.apply(one)
    usual = store.runs[RUN].attempts[1].placements
    other = tuple(replace(one, rank=RANKS - 1 - one.rank) for one in usual)
    for number, reason in enumerate(reasons, start=1):
        at_s = ENDED_S + 100 * number
        placed = other if number in swapped else usual
        store.apply(
            AttemptStarted(
                at_s=at_s - 50, source="telemetry", run_id=RUN, attempt=number, placements=placed
            )
        )
        store.apply(
            AttemptEnded(at_s=at_s, source="telemetry", run_id=RUN, attempt=number, reason=reason)
        )
    return store


def test_same_cause_three_times_in_a_row_advises_stop() -> None:
    store = attempts(*["rank 1: killed, its node ran out of memory"] * 3)
    causes = causes_of_run(store, store.runs[RUN])
    assert [cause.advice for cause in causes] == [Advice.RESTART, Advice.RESTART, Advice.STOP]
    assert causes[-1].advice_reason == "it ended 3 attempts in a row"


ILLEGAL = "rank 1: RuntimeError: CUDA error: an illegal memory access was encountered"


def test_cuda_error_on_another_node_too_is_an_error_of_the_code() -> None:
    store = attempts(ILLEGAL, ILLEGAL, swapped=[2])
    first, second = causes_of_run(store, store.runs[RUN])
    assert (first.category, first.advice) == (Category.CUDA, Advice.RESTART)
    assert first.confidence is Confidence.MEDIUM
    assert second.advice is Advice.STOP
    assert (
        second.advice_reason
        == "attempt 1 failed the same way on another node, so the code is the cause"
    )


def test_cuda_error_on_the_same_node_again_is_for_a_cordon_of_it() -> None:
    store = attempts(ILLEGAL, ILLEGAL)
    second = causes_of_run(store, store.runs[RUN])[-1]
    assert (second.category, second.advice) == (Category.CUDA, Advice.RESTART)
    assert second.advice_reason == "after you cordon its node, where attempt 1 failed the same way"


def test_preemptions_always_advise_restart() -> None:
    store = attempts(*["preempted: the node of rank 1 is reclaimed"] * 5)
    assert {cause.advice for cause in causes_of_run(store, store.runs[RUN])} == {Advice.RESTART}


def test_attempt_that_finished_or_was_resized_has_no_cause() -> None:
    store = attempts("resized to 3 workers", "finished")
    assert causes_of_run(store, store.runs[RUN]) == ()


def test_newest_end_of_runs_and_jobs_is_found() -> None:
    store = attempts("rank 1: ValueError: no")
    assert newest_cause(Store()) is None
    newest = newest_cause(store)
    assert newest is not None
    assert newest.run_id == RUN
    for one in job("runtime_env setup failed: no"):
        store.apply(one)
    assert newest_cause(store) is not None


def test_run_without_attempts_has_the_cause_of_its_message() -> None:
    store = Store()
    store.apply(state(ENDED_S, RunState.ERRORED, "waits for resources: 2 workers need 2 GPU"))
    [cause] = causes_of_run(store, store.runs[RUN])
    assert (cause.category, cause.attempt) == (Category.RESOURCES, None)


def test_explanations_of_ray_are_no_evidence() -> None:
    text = (
        "The actor died unexpectedly before finishing this task. There are some potential root "
        "causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage."
    )
    found = match(text)
    assert found is not None
    assert found.category is Category.KILLED
    assert found.is_thin


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 20 loss 0.31",
        "Saved checkpoint to /s/checkpoint_2",
        "WARNING: retrying",
        "ray.train.v2.api.exceptions.WorkerGroupError: Training failed due to worker errors:",
        "2026-11-23 12:00:00 INFO worker.py:1843 -- Connected to Ray cluster.",
        "UserWarning: The given NumPy array is not writable",
    ],
)
def test_ordinary_lines_match_no_rule(line: str) -> None:
    assert match(line) is None


def test_every_category_has_advice_and_the_table_has_each() -> None:
    assert set(ADVICE) == set(Category)
    assert {rule.category for rule in RULES} == set(Category)
