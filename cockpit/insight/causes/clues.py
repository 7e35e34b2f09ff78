"""Collect clues from the store about the end of an attempt or a job, by the matching rules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cockpit.insight.causes.rules import (
    DRILLS,
    EFFECTS,
    EXCEPTION,
    GUARD_RESTART,
    Rule,
    match,
    plain,
)
from cockpit.insight.causes.types import Category
from cockpit.insight.hang.types import Confidence, Kind
from cockpit.insight.hang.verdict import last_verdict
from cockpit.model.cluster import NodeType, Pod
from cockpit.model.drill import Drill
from cockpit.model.run import Job, JobStatus
from cockpit.model.text import one_line
from cockpit.store.run import AttemptView, RunView
from cockpit.store.store import Store

BEFORE_S, AFTER_S = 90.0, 15.0
"""A clue of the cluster counts from this long before the end until this long after it."""
LOG_TAIL_S = 120.0
"""A job that fails later than this after an attempt failed for another reason."""
REPORTED, TRACEBACK, EARLIER = 20, 15, -25
"""Added to the weight of an exception that Ray Train names or that is in the last traceback; and of
any line before that traceback, or after it if the traceback shows a cause."""
DRILL_WEIGHT, OTHER_DRILL_WEIGHT, DRILL_SUPPORT = 96, 50, 20
MEMORY_KILL_WEIGHT, MEMORY_KILL_NEAR_WEIGHT = 98, 72
HANG_WEIGHT = 72
DEAD_NODE_WEIGHT = 70
WITHDRAWN_WEIGHT, ALL_WITHDRAWN_WEIGHT, LONG_WITHDRAWN_WEIGHT = 93, 70, 50
LINES, LINE = 1_000, 2_000
"""The number of last lines of a log that are matched, and of first characters of each."""
CLEANUP = 50
"""The most lines after an exception that ended its process; with more, the process continued."""
EXIT_CODE = "Job entrypoint command failed with exit code"
_RANKS = re.compile(r"^ranks? (\d+(?:, \d+)*): (.*)$", re.DOTALL)
_RANKS_WITHIN = re.compile(r"\branks? (\d+(?:, \d+)*)\b")
_PREFIX = re.compile(r"^(?:the worker group did not start|its job is [A-Z]+): ")
_FRAME = re.compile(r'^File ".*", line \d+')
_EXCEPTION = re.compile(
    r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Failure|Interrupt|Exit)\b(?:\(|:|$)"
)
_IGNORED = re.compile(r"^(?:Exception ignored |Error in atexit\.)")
"""What Python writes before the traceback of an exception at the end of the process."""
_SNIPPET = re.compile(r"^\[Rank (\d+) Error Snippet\]")
_HANG_CATEGORIES = {
    Kind.NETWORK: Category.NETWORK,
    Kind.STORAGE: Category.STORAGE,
    Kind.GPU: Category.GPU,
    Kind.RESOURCES: Category.RESOURCES,
}


class Clue(Struct, frozen=True):
    """One line that shows how something ended."""

    category: Category
    weight: int
    what: str
    quote: str
    quoted_from: str
    at_s: float | None = None
    ranks: tuple[int, ...] = ()
    pod: str = ""
    node: str = ""
    is_victim: bool = False
    subject: str = ""
    """The subject, if it is neither a rank nor a pod."""


def clue_of(
    text: str,
    quoted_from: str,
    at_s: float | None = None,
    *,
    ranks: tuple[int, ...] = (),
    pod: str = "",
    node: str = "",
    bonus: int = 0,
    subject: str = "",
) -> Clue | None:
    rule = match(text)
    if rule is None:
        return None
    return Clue(
        rule.category,
        rule.weight + _applied(rule, bonus),
        _what(rule, text),
        one_line(plain(text) or text, 300),
        quoted_from,
        at_s,
        ranks,
        pod,
        node,
        rule.is_victim,
        subject,
    )


def _applied(rule: Rule, bonus: int) -> int:
    if bonus < 0:
        return 0 if rule.is_thin else bonus
    return bonus if rule.is_of_script else 0


def _what(rule: Rule, text: str) -> str:
    """An exception without a specific rule is named."""
    if not rule.is_generic:
        return rule.what
    return f"raised {one_line(plain(text), 160)}".rstrip(".: ")


def of_attempt(store: Store, run: RunView, attempt: AttemptView) -> list[Clue]:
    """In no order."""
    end_s = attempt.ended_s if attempt.ended_s is not None else math.inf
    found = list(of_reason(attempt.reason, "Ray Train", attempt.ended_s))
    is_last = run.attempt is attempt
    if is_last and run.state.is_over and run.message != attempt.reason:
        found += of_reason(run.message, "Ray Train", run.ended_s)
    job = store.jobs.get(run.submission_id)
    if is_last and job is not None and _ended_with(job, end_s):
        found += of_job(job)
        found += of_excerpts(store, job.id, 0, job.ended_s)
    found += of_excerpts(store, run.id, attempt.number, attempt.ended_s)
    found += _of_memory_kills(store, attempt, end_s)
    found += _of_pods(store, attempt, end_s)
    found += _of_notices(store, attempt, end_s)
    found += _of_nodes(store, attempt, end_s)
    found += _of_dead_nodes(store, run, attempt)
    found += _of_withdrawn_gpus(store, attempt, end_s)
    found += _of_hang(store, run, attempt, end_s)
    found += _of_xid(run, attempt, end_s)
    located = [_located(store, attempt, clue) for clue in found]
    return [*located, *_of_drills(store, run, attempt, end_s, located)]


def of_reason(reason: str, quoted_from: str, at_s: float | None) -> Iterator[Clue]:
    """Of one line of Ray Train: `ranks 1, 3: its node died`."""
    ranks: tuple[int, ...] = ()
    text = _PREFIX.sub("", reason)
    if (named := _RANKS.match(reason)) is not None:
        ranks, text = _numbers(named[1]), named[2]
    elif (within := _RANKS_WITHIN.search(reason)) is not None:
        ranks = _numbers(within[1])
    found = clue_of(text, quoted_from, at_s, ranks=ranks, bonus=REPORTED)
    if found is not None:
        yield replace(found, quote=one_line(reason, 300))


def of_job(job: Job) -> Iterator[Clue]:
    """Of the status message of a job that is over, whose end is the end of its log."""
    if job.status is JobStatus.STOPPED:
        text = "job stopped"
        if (found := clue_of(text, "job status", job.ended_s, subject="The job")) is not None:
            yield replace(found, quote=one_line(job.message, 300) or "STOPPED")
    elif job.status is JobStatus.FAILED:
        for found in of_lines(job.message.splitlines(), "job log", job.ended_s, subject="The job"):
            if found.quote.startswith(EXIT_CODE):  # a line of the log shows more
                quote = found.quote.partition(", last available")[0]
                found = replace(found, weight=found.weight - 1, quote=quote)
            yield found


def of_excerpts(store: Store, key: str, attempt: int, at_s: float | None) -> Iterator[Clue]:
    """Of the logs that were read: `key` is the run's id, or the job's with attempt 0."""
    for excerpt in store.excerpts.get((key, attempt), {}).values():
        ranks = () if excerpt.rank is None else (excerpt.rank,)
        subject = "The job" if excerpt.rank is None else ""
        yield from of_lines(excerpt.lines, excerpt.log, at_s, ranks=ranks, subject=subject)


def of_lines(
    lines: Sequence[str],
    quoted_from: str,
    at_s: float | None,
    *,
    ranks: tuple[int, ...] = (),
    subject: str = "",
) -> Iterator[Clue]:
    """Of a log: its last chain of tracebacks counts more than the lines before and after."""
    lines = [line[:LINE] for line in lines[-LINES:]]
    begin = _last_chain(lines)
    end = len(lines) if begin is None else _end_of_chain(lines, begin)
    of_snippet: tuple[int, ...] = ()
    for number, line in enumerate(lines):
        text = plain(line)
        if (snippet := _SNIPPET.match(text)) is not None:
            of_snippet = (int(snippet[1]),)
        bonus = 0 if begin is None else TRACEBACK if begin <= number < end else EARLIER
        found = clue_of(
            line, quoted_from, at_s, ranks=of_snippet or ranks, bonus=bonus,
            subject=subject,
        )  # fmt: skip
        if found is not None:
            yield found


def _last_chain(lines: Sequence[str]) -> int | None:
    """The start of the last chain of tracebacks; 0 if it was cut off."""
    begins = [
        at
        for at, line in enumerate(lines)
        if "Traceback (most recent call last)" in line
        and not (at and _IGNORED.match(plain(lines[at - 1])))
    ]
    if not begins:
        return 0 if any(_FRAME.match(plain(line)) for line in lines) else None
    first = begins[-1]
    for at in reversed(begins[:-1]):
        between = "\n".join(lines[at:first])
        if "The above exception was" not in between and "During handling" not in between:
            break
        first = at
    return first


def _end_of_chain(lines: Sequence[str], begin: int) -> int:
    """The end of the chain that begins there; that of the log if later lines may be the cause."""
    end, is_explained, is_in_frames = begin, False, False
    for at, line in enumerate(lines[begin:], begin):
        text = plain(line)
        if is_explained and _IGNORED.match(text):
            break
        if _FRAME.match(text):
            is_in_frames = True
        elif is_in_frames and _EXCEPTION.match(text):
            end, is_in_frames = at + 1, False
            rule = match(text)
            is_explained |= rule is not None and not rule.is_victim and rule.weight >= EXCEPTION
    return end if is_explained and len(lines) - end <= CLEANUP else len(lines)


def _ended_with(job: Job, end_s: float) -> bool:
    if not job.status.is_over:
        return False
    return job.ended_s is None or end_s == math.inf or abs(job.ended_s - end_s) <= LOG_TAIL_S


def _of_memory_kills(store: Store, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    """A killed rank is the cause; another process of its node, or of the head's, may be."""
    by_process = {(p.node_id, p.pid): p.rank for p in attempt.placements}
    hosting = {p.node_id for p in attempt.placements}
    hosting |= {node.id for node in store.nodes.values() if node.is_head}
    for kill in store.memory_kills:
        if not _is_near(kill.at_s, attempt, end_s) or kill.node_id not in hosting:
            continue
        rank = by_process.get((kill.node_id, kill.pid))
        yield Clue(
            Category.HOST_MEMORY,
            MEMORY_KILL_NEAR_WEIGHT if rank is None else MEMORY_KILL_WEIGHT,
            "was killed by Ray's memory monitor, since its node ran out of memory"
            if rank is not None
            else f"lost a process (pid {kill.pid}) to Ray's memory monitor",
            one_line(kill.detail, 300),
            "memory monitor",
            kill.at_s,
            () if rank is None else (rank,),
            node=kill.node_id if rank is None else "",
        )


def _of_pods(store: Store, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    """Of pods that hosted ranks, and of the head."""
    for pod in _hosts(store, attempt):
        if not pod.reason:
            continue
        at_s = pod.ended_s or store.removed_pods.get(pod.name)
        if at_s is None or not _is_near(at_s, attempt, end_s):
            continue
        found = clue_of(pod.reason, "pod status", at_s, pod=pod.name, node=pod.host)
        if found is not None:
            yield found


def _of_notices(store: Store, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    if not store.notices:
        return
    hosts = {pod.name: pod for pod in _hosts(store, attempt)}
    ips = _ips(attempt)
    names = {past.name for past in store.past.pods.values() if past.ip in ips} | hosts.keys()
    node_names = {pod.host for pod in hosts.values() if pod.host}
    for notice in store.notices:
        is_ours = notice.name in names or notice.name in node_names
        if not is_ours or not _is_near(notice.at_s, attempt, end_s):
            continue
        pod = notice.name if notice.name in names else ""
        node = notice.name if notice.name in node_names else ""
        text = f"{notice.reason}: {notice.message}"
        if (found := clue_of(text, "event", notice.at_s, pod=pod, node=node)) is not None:
            yield found


def _of_nodes(store: Store, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    """Of the Ray nodes that hosted ranks and died."""
    hosting = {placement.node_id for placement in attempt.placements}
    for death in store.past.deaths:
        if death.id not in hosting or not _is_near(death.at_s, attempt, end_s):
            continue
        node = store.nodes.get(death.id)
        text = node.state_message if node is not None else ""
        ranks = tuple(p.rank for p in attempt.placements if p.node_id == death.id)
        found = clue_of(text, "Ray node", death.at_s, ranks=ranks) if text else None
        if found is None or found.weight < EXCEPTION:
            found = clue_of("its node died", "Ray node", death.at_s, ranks=ranks)
        if found is not None:
            yield replace(found, quote=one_line(text or f"node {death.id[:8]} is dead", 300))


def _of_dead_nodes(store: Store, run: RunView, attempt: AttemptView) -> Iterator[Clue]:
    """Nodes that were dead when first seen: the time is unknown, but no later attempt used them."""
    already_dead = {death.id for death in store.past.deaths}
    later = {
        placement.node_id
        for number, other in run.attempts.items()
        if number > attempt.number
        for placement in other.placements
    }
    hosting = {placement.node_id for placement in attempt.placements}
    for node_id in sorted(hosting - already_dead - later):
        node = store.nodes.get(node_id)
        if node is not None and not node.alive:
            ranks = tuple(p.rank for p in attempt.placements if p.node_id == node_id)
            quote = one_line(node.state_message or f"node {node_id[:8]} is dead", 300)
            yield Clue(
                Category.NODE, DEAD_NODE_WEIGHT, "lost its node", quote, "Ray node", ranks=ranks
            )


def _of_withdrawn_gpus(store: Store, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    """Of the K8s nodes of the ranks. Its time is unknown where it was so in the first list."""
    pods = {pod.host: pod for pod in _hosts(store, attempt) if pod.host}
    for one in store.past.withdrawals:
        is_near = one.is_seen and _is_near(one.at_s, attempt, end_s)
        if one.node in pods and (is_near or (not one.is_seen and one.at_s > end_s)):
            near_weight = WITHDRAWN_WEIGHT if one.is_partial else ALL_WITHDRAWN_WEIGHT
            yield Clue(
                Category.GPU,
                near_weight if is_near else LONG_WITHDRAWN_WEIGHT,
                "lost a GPU, which Kubernetes withdrew",
                f"node {one.node}: {one.what}",
                "K8s node",
                one.at_s if is_near else None,
                pod=pods[one.node].name,
                node=one.node,
            )


def _of_hang(store: Store, run: RunView, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    """From the dumps of ranks without progress at the end of the attempt, else from its alert."""
    found = last_verdict(run, attempt)
    if found is not None and found.is_late and found.confidence is not Confidence.LOW:
        yield Clue(
            _HANG_CATEGORIES.get(found.kind, Category.HANG), HANG_WEIGHT, "blocked the other ranks",
            found.sentence, "cockpit hang", end_s - found.idle_s if end_s < math.inf else None,
            found.ranks,
        )  # fmt: skip
        return
    for view in [*store.alerts.values(), *store.alerts_past]:
        finding, raised_s = view.alert.finding, view.alert.raised_s
        over_s = view.cleared_s if view.cleared_s is not None else math.inf
        is_ours = finding.kind == "hang" and finding.run_id == run.id
        if is_ours and (attempt.started_s or 0.0) <= raised_s <= end_s <= over_s + AFTER_S:
            kind = next((k for k in Kind if finding.why.startswith(f"{k.value},")), Kind.USER)
            named = _RANKS_WITHIN.search(finding.what.lower())
            yield Clue(
                _HANG_CATEGORIES.get(kind, Category.HANG), HANG_WEIGHT, "blocked the other ranks",
                finding.what, "alert hang", raised_s, _numbers(named[1]) if named else (),
            )  # fmt: skip


def _of_xid(run: RunView, attempt: AttemptView, end_s: float) -> Iterator[Clue]:
    for rank in run.ranks.values():
        sample = rank.sample
        if sample is None or sample.attempt != attempt.number or sample.gpu_xid is None:
            continue
        if _is_near(sample.at_s, attempt, end_s):
            text = f"Xid {sample.gpu_xid}"
            if (found := clue_of(text, "NVML", sample.at_s, ranks=(rank.rank,))) is not None:
                yield found


def _of_drills(
    store: Store, run: RunView, attempt: AttemptView, end_s: float, others: Sequence[Clue]
) -> Iterator[Clue]:
    """Of the faults that were injected into the attempt: strong where nothing contradicts them."""
    for drill in store.drills:
        by_guard = drill.fault == GUARD_RESTART
        names = (Category.HANG,) if by_guard else DRILLS.get(drill.fault)
        hit = drill.run_id == run.id and drill.attempt in (0, attempt.number)
        if names is None or not hit or not _is_near(drill.injected_s, attempt, end_s):
            continue
        strong = [clue for clue in others if not clue.is_victim and clue.weight >= EXCEPTION]
        agreeing = max(
            (clue for clue in strong if clue.category in names), key=_weight, default=None
        )
        contradicting = [clue for clue in strong if clue.category not in {*names, *EFFECTS}]
        yield Clue(
            agreeing.category if agreeing is not None else names[0],
            OTHER_DRILL_WEIGHT if contradicting and agreeing is None else DRILL_WEIGHT,
            "made the run hang until the guard ended it"
            if by_guard
            else f"was hit by the drill {drill.fault}",
            _drill_text(drill),
            "drill",
            drill.injected_s,
            drill.ranks,
            drill.pods[0] if len(drill.pods) == 1 else "",
        )


def _weight(clue: Clue) -> int:
    return clue.weight


def _drill_text(drill: Drill) -> str:
    return f"drill {drill.id}: {drill.fault} of {drill.target}"


def _located(store: Store, attempt: AttemptView, clue: Clue) -> Clue:
    """With the rank's pod and node, or the pod's ranks."""
    if clue.ranks and not clue.pod:
        placed = [p for p in attempt.placements if p.rank in clue.ranks]
        ips = {p.node_ip for p in placed}
        if len(ips) == 1:
            ip = ips.pop()
            pod = _pod_at(store, ip)
            node = (pod.host if pod is not None else "") or placed[0].node_id
            removed = (past.name for past in store.past.pods.values() if ip and past.ip == ip)
            name = pod.name if pod is not None else next(removed, "")
            return replace(clue, pod=name, node=clue.node or node)
    elif clue.pod and not clue.ranks:
        past_pod = store.past.pods.get(clue.pod)
        ip = store.pods[clue.pod].ip if clue.pod in store.pods else past_pod.ip if past_pod else ""
        ranks = tuple(p.rank for p in attempt.placements if ip and p.node_ip == ip)
        return replace(clue, ranks=ranks)
    return clue


def _pod_at(store: Store, ip: str) -> Pod | None:
    return next((pod for pod in store.pods.values() if ip and pod.ip == ip), None)


def _hosts(store: Store, attempt: AttemptView) -> list[Pod]:
    """The pods that host ranks, and the head."""
    ips = _ips(attempt)
    return [pod for pod in store.pods.values() if pod.ip in ips or pod.node_type is NodeType.HEAD]


def _ips(attempt: AttemptView) -> set[str]:
    return {placement.node_ip for placement in attempt.placements} - {""}


def _is_near(at_s: float, attempt: AttemptView, end_s: float) -> bool:
    begin_s = max(attempt.started_s or 0.0, end_s - BEFORE_S) if end_s < math.inf else 0.0
    return begin_s <= at_s <= end_s + AFTER_S


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(", ")[:1024])


def earliest(clues: Iterable[Clue]) -> Clue | None:
    """The clue of highest weight, of several the first in time."""

    def order(clue: Clue) -> tuple[int, float]:
        return -clue.weight, clue.at_s if clue.at_s is not None else math.inf

    return min(clues, key=order, default=None)
