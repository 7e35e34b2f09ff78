"""Why an attempt ended, in one line, from the error that Ray Train's controller received.

The errors are distinguished by their attributes and not by their class, so that this does not need
Ray: WorkerGroupError has `worker_failures`, PreemptionError `preemption_info`, ControllerError
`controller_failure`, WorkerHealthCheckFailedError `health_check_failure`
(ray.train.v2.api.exceptions, ray.train.v2._internal.exceptions), RayActorError `preempted`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

LIMIT = 240

DIED = "its process died (killed, out of memory, or crashed)"

FROZEN = "WorkerHealthCheckTimeoutError"
"""Ray Train's error for a rank that did not answer in time."""

_COLLECTIVE = re.compile(
    r"gloo|nccl|connection (closed|reset)|broken pipe|process group|collective|store->|TCPStore",
    re.IGNORECASE,
)
_PLACE = re.compile(r"^\w+Error: |\[[^\]]*\.(?:cc|cpp|h):\d+\] ?")
_DETAIL = re.compile(r"Worker exit detail: (.*?)(?= There are some potential|\n|$)", re.DOTALL)


def reason(error: BaseException | None, dead: Mapping[int, BaseException] | None = None) -> str:
    """One line of at most LIMIT characters; "" for no error.

    `dead` are the ranks whose processes were found dead since: the controller may have received the
    failures of their victims first.
    """
    if error is None:
        return ""
    return _cut(" ".join(_reason(error, dead or {}).split()))


def of_ranks(reported: Mapping[int, str]) -> str:
    """Select from the reasons of all ranks that ended, in the order in which they ended, '' for
    success; '' for no failure.

    The cause is the first that does not look like a victim. After it ended, its launcher kills the
    others, so a later death without a message means nothing.
    """
    failed = [rank for rank, why in reported.items() if why]
    if not failed:
        return ""
    causes = [rank for rank in failed if not _COLLECTIVE.search(reported[rank])]
    first = (causes or failed)[0]
    spoken = [rank for rank in causes or failed if reported[rank] != DIED]
    alike = [first] if reported[first] == DIED else sorted(spoken)
    why = reported[alike[0]]
    return _cut(f"{_named(alike)}: {why if causes else _victims(why)}")


def preempted(info: object) -> str:
    """From Ray Train's PreemptionInfo."""
    ranks = sorted(getattr(info, "preempted_ranks", ()))
    if not ranks:
        return "preempted: a node is reclaimed"
    return f"preempted: the node of {_named(ranks)} is reclaimed"


def lacking(workers: int, each: Mapping[str, float], there: Mapping[str, float]) -> str:
    """What a worker group waits for that even the idle cluster does not have; "" for nothing.

    Ray waits without a message, since an autoscaler or a replaced pod may add it.
    """
    short = [
        f"{amount * workers:g} {name} and the cluster has {there.get(name, 0.0):g}"
        for name, amount in sorted(each.items())
        if amount * workers > there.get(name, 0.0)
    ]
    if not short:
        return ""
    who = "1 worker needs" if workers == 1 else f"{workers} workers need"
    return f"waits for resources: {who} {', '.join(short)}"


def _reason(error: BaseException, dead: Mapping[int, BaseException]) -> str:
    failures = getattr(error, "worker_failures", None)
    if isinstance(failures, Mapping) and failures:
        # `training.recovery` kills a rank that did not answer: its death is no cause.
        frozen = {rank: each for rank, each in failures.items() if type(each).__name__ == FROZEN}
        return _first_cause({**failures, **dead, **frozen})
    info = getattr(error, "preemption_info", None)
    if info is not None:
        return preempted(info)
    inner = getattr(error, "controller_failure", None)
    if isinstance(inner, BaseException):
        return _reason(inner, dead)
    cause = error.__cause__
    if cause is not None and type(error).__name__ == "WorkerGroupStartupFailedError":
        return f"the worker group did not start: {_of_rank(cause)}"
    return _sentence(error)


def _first_cause(failures: Mapping[int, BaseException]) -> str:
    """One rank's failure makes the others fail; name the one that does not look like a victim."""

    def order(rank: int) -> tuple[int, int]:
        error = failures[rank]
        if hasattr(error, "health_check_failure") or hasattr(error, "preempted"):
            return 0, rank
        return (2 if _COLLECTIVE.search(str(error)) else 1), rank

    kind = order(min(failures, key=order))[0]
    alike = sorted(rank for rank in failures if order(rank)[0] == kind)
    reported = _of_rank(failures[alike[0]])
    return f"{_named(alike)}: {_victims(reported) if kind == 2 else reported}"


def _named(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"


def _victims(text: str) -> str:
    """If there are only victims, because the cause died without a message: the first sentence of a
    collective's error, without the C++ source line.
    """
    return f"lost a peer: {_PLACE.sub('', text).split('. ')[0]}"


def _cut(line: str) -> str:
    return line if len(line) <= LIMIT else line[: LIMIT - 1] + "…"


def _of_rank(error: BaseException) -> str:
    error = getattr(error, "health_check_failure", None) or error
    if getattr(error, "preempted", False) is True:
        return "its node was preempted"
    text = str(error)
    lower = text.lower()
    if "node has died" in lower or "node is dead" in lower or "node died" in lower:
        return "its node died"
    if "low on memory" in lower or "memory pressure" in lower:
        return "killed, its node ran out of memory"
    if detail := _DETAIL.search(text):
        if "connection error code 2" in detail[1]:
            # Ray's message for a process that died without one: SIGKILL, the kernel's OOM killer or
            # a crash.
            return DIED
        return f"its process died: {detail[1]}"
    return _sentence(error)


def _sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Ray's wrapping has the traceback first and the error last.
    text = lines[-1] if lines and lines[0].startswith("Traceback") else (lines or [""])[0]
    name = type(error).__name__
    return text if text.startswith(name) else f"{name}: {text}" if text else name
