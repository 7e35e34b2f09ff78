"""Why a pod is not ready, or how it ended, in one line. Pure.

The pod's object has priority; `with_context` adds what only an event or the node shows (a failing
probe, a volume that cannot be mounted, a lost node).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from typing import Any

from cockpit.backends.kuberay.api.fields import is_ready, items, mapping, quantity, text, whole
from cockpit.format import in_seconds, plural
from cockpit.model.secret import masked
from cockpit.model.text import one_line

GCS_WAIT = "wait-gcs-ready"
"""The init container that KubeRay gives to each worker."""
LIMIT = 160
_NO_NODE = re.compile(
    r"^(\d+/\d+) nodes? (?:are|is) available: (.*?)"
    r"(?:\.?\s*(?:no new claims to deallocate|preemption:).*)?$",
    re.S,
)
_PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_QUOTA = re.compile(
    r"exceeded quota: ([^,]+), requested: (.*?), used: (.*?), limited: ([^;\n]*)", re.S
)
_FORBIDDEN = re.compile(r'"[^"]+" is forbidden: (.+)', re.S)
_STILL = ("ContainerCreating", "PodInitializing", "")
NOT_READY = "runs, but is not ready yet"
CREATING = "its containers are being created"


def reason(raw: Mapping[str, Any]) -> str:
    """Empty for a pod that is ready."""
    return one_line(_reason(raw), LIMIT)


def _reason(raw: Mapping[str, Any]) -> str:
    phase = text(mapping(raw, "status"), "phase")
    if phase in ("Failed", "Succeeded"):
        return _ended(raw)
    if "deletionTimestamp" in mapping(raw, "metadata"):
        return _terminating(raw)
    if is_ready(raw):
        return ""
    scheduled = _condition(raw, "PodScheduled")
    if text(scheduled, "status") == "False":
        return _unscheduled(raw, scheduled)
    if not text(mapping(raw, "spec"), "nodeName"):
        return "waits for the scheduler"
    for status in items(mapping(raw, "status"), "initContainerStatuses"):
        if found := _init(status):
            return found
    for status in items(mapping(raw, "status"), "containerStatuses"):
        if found := _container(status):
            return found
    if phase == "Pending":
        return CREATING
    if text(mapping(raw, "status"), "reason") == "NodeLost" or phase == "Unknown":
        return f"its node {text(mapping(raw, 'spec'), 'nodeName')} does not answer"
    return NOT_READY


def of_container(raw: Mapping[str, Any]) -> str:
    """The name of the container that the reason of a crashed pod is about; empty if unknown."""
    status = mapping(raw, "status")
    init, main = items(status, "initContainerStatuses"), items(status, "containerStatuses")
    if text(status, "phase") == "Failed":
        about = [
            each
            for each in (*main, *init)
            if whole(mapping(mapping(each, "state"), "terminated"), "exitCode")
        ]
    else:
        about = [*filter(_init, init), *filter(_container, main)]
    return text(about[0], "name") if about else ""


def unschedulable(message: str, asked: Mapping[str, float]) -> str:
    """Shorten the scheduler's message, with the missing resources first.

    `asked`: the pod's requests by resource name.
    """
    match = _NO_NODE.match(message)
    if match is None:
        return f"cannot be scheduled: {message}" if message else "cannot be scheduled"
    count, details = match[1], " ".join(match[2].split()).rstrip(",. ")
    phrase = "no node fits"
    short = re.findall(r"Insufficient ([^,\s]*[^,.\s])", details)
    # GPUs are what a training pod most often waits for, and what is hardest to get.
    short.sort(key=lambda name: (not name.endswith("/gpu"), name))
    if short:
        name = short[0]
        phrase = f"no node has {_amount(name, asked.get(name, 0.0))}"
    elif "untolerated taint" in details and "," not in details:
        phrase = "every node is tainted"
    elif "unschedulable" in details and "," not in details:
        phrase = "every node is cordoned"
    elif "affinity/selector" in details and "," not in details:
        phrase = "no node matches its selector"
    return f"{phrase} ({count} nodes: {details})"


def ended(state: Mapping[str, Any]) -> str:
    """How a container ended: `out of memory (OOMKilled)`, `exit code 137 (SIGKILL)`."""
    code, why = whole(state, "exitCode", -1), text(state, "reason")
    if why == "OOMKilled":
        found = "out of memory (OOMKilled)"
    elif why in ("ContainerCannotRun", "StartError"):
        found = "its command cannot be run"
    else:
        found = "ended" if code < 0 else f"exit code {code}{_signal(code)}"
    message = state.get("message")
    last = last_log_line(message) if isinstance(message, str) else ""
    return f"{found}: {last}" if last else found


def last_log_line(text: str) -> str:
    """The most informative line of a container's last output: the last one that is not empty.

    Without secrets: it is shown and recorded.
    """
    lines = [one_line(line) for line in text.splitlines()]
    return masked(next((line for line in reversed(lines) if line), ""))


def refusal(message: str) -> str:
    """Why pods cannot be created, shortened: the exhausted quota, or the API server's message."""
    if quota := _QUOTA.search(message):
        name, requested, used, limited = (" ".join(part.split()) for part in quota.groups())
        return one_line(
            f"quota {name} is used up (needs {requested}, used {used}, limit {limited})", LIMIT
        )
    if forbidden := _FORBIDDEN.search(message):
        return one_line(f"pods are refused: {forbidden[1]}", LIMIT)
    return one_line(message, LIMIT)


def with_last_log_line(reason: str, text: str) -> str:
    """The reason with the last line of the container's previous log."""
    last = last_log_line(text)
    return one_line(f"{reason}: {last}", LIMIT) if last and last not in reason else reason


def with_context(reason: str, *, warning: str = "", lost_node: str = "") -> str:
    """`warning`: the latest warning event; `lost_node`: its node when that is not ready."""
    if lost_node:
        return one_line(f"its node is lost: {lost_node}", LIMIT)
    if warning and reason in (NOT_READY, CREATING):
        return one_line(warning, LIMIT)
    return reason


def _ended(raw: Mapping[str, Any]) -> str:
    why, message = text(mapping(raw, "status"), "reason"), text(mapping(raw, "status"), "message")
    if why == "Evicted":
        return f"evicted: {message}" if message else "evicted"
    disrupted = _condition(raw, "DisruptionTarget")
    if text(disrupted, "status") == "True":
        return f"{_disruption(text(disrupted, 'reason'))}: {text(disrupted, 'message')}"
    for status in items(mapping(raw, "status"), "containerStatuses"):
        state = mapping(mapping(status, "state"), "terminated")
        if state and (
            whole(state, "exitCode") or text(mapping(raw, "status"), "phase") == "Succeeded"
        ):
            return ended(state)
    for status in items(mapping(raw, "status"), "initContainerStatuses"):
        state = mapping(mapping(status, "state"), "terminated")
        if state and whole(state, "exitCode"):
            return f"init container {text(status, 'name')}: {ended(state)}"
    return f"{why}: {message}" if why and message else message or why or "ended"


def _terminating(raw: Mapping[str, Any]) -> str:
    grace = whole(mapping(raw, "metadata"), "deletionGracePeriodSeconds", -1)
    found = "terminating" if grace < 0 else f"terminating with {in_seconds(grace)} grace"
    disrupted = _condition(raw, "DisruptionTarget")
    if text(disrupted, "status") == "True":
        found += f", {_disruption(text(disrupted, 'reason'))}"
    finalizers = mapping(raw, "metadata").get("finalizers")
    if isinstance(finalizers, list) and finalizers:
        found += f", held by {one_line(str(finalizers[0]))}"
    return found


def _disruption(reason: str) -> str:
    return {
        "DeletionByTaintManager": "its node is lost or tainted",
        "PreemptionByScheduler": "preempted",
        "EvictionByEvictionAPI": "evicted through the API",
        "TerminationByKubelet": "evicted by its node",
        "DeletionByPodGC": "its node does not exist",
    }.get(reason, reason or "disrupted")


def _unscheduled(raw: Mapping[str, Any], scheduled: Mapping[str, Any]) -> str:
    if text(scheduled, "reason") == "SchedulingGated":
        gates = [text(gate, "name") for gate in items(mapping(raw, "spec"), "schedulingGates")]
        return f"held back by scheduling gate {', '.join(gates)}"
    return unschedulable(text(scheduled, "message", limit=1000), _asked(raw))


def _asked(raw: Mapping[str, Any]) -> dict[str, float]:
    asked: dict[str, float] = {}
    for container in items(mapping(raw, "spec"), "containers"):
        for name, amount in mapping(mapping(container, "resources"), "requests").items():
            asked[str(name)] = asked.get(str(name), 0.0) + quantity(amount)
    return asked


def _amount(name: str, asked: float) -> str:
    if name.endswith("/gpu"):
        return plural(asked, "free GPU")
    if name == "cpu":
        return plural(asked, "free CPU")
    if name == "memory":
        return f"{asked / 2**30:.3g} GiB of free memory"
    return f"enough free {name}"


def _init(status: Mapping[str, Any]) -> str:
    name = text(status, "name")
    state = mapping(status, "state")
    if (done := mapping(state, "terminated")) and whole(done, "exitCode") == 0:
        return ""
    if waiting := mapping(state, "waiting"):
        why = text(waiting, "reason")
        if why in _PULL:
            return _pull(status, waiting)
        if why == "CrashLoopBackOff":
            before = mapping(mapping(status, "lastState"), "terminated")
            return f"init container {name} crashes: {ended(before)}"
        if why in _STILL:
            return ""
        return f"init container {name}: {why} {text(waiting, 'message')}"
    if done:
        return f"init container {name}: {ended(done)}"
    if "running" in state:
        if name == GCS_WAIT:
            return "waits for the head's GCS"
        if whole(status, "restartCount"):
            last = ended(mapping(mapping(status, "lastState"), "terminated"))
            return f"init container {name} runs again, after {last}"
        return f"init container {name} runs"
    return ""


def _container(status: Mapping[str, Any]) -> str:
    name, state = text(status, "name"), mapping(status, "state")
    before = mapping(mapping(status, "lastState"), "terminated")
    if waiting := mapping(state, "waiting"):
        why, message = text(waiting, "reason"), text(waiting, "message")
        if why in _PULL:
            return _pull(status, waiting)
        if why == "CrashLoopBackOff":
            return f"crash loop, {_times(status)}: {ended(before)}"
        if why in _STILL:
            return ""
        return f"{name}: {why}{': ' + message if message else ''}"
    if done := mapping(state, "terminated"):
        return f"{name} ended: {ended(done)}"
    if before and status.get("ready") is not True:
        return f"restarted, {_times(status)}, after {ended(before)}"
    return ""


def _times(status: Mapping[str, Any]) -> str:
    return plural(whole(status, "restartCount"), "restart")


def _pull(status: Mapping[str, Any], waiting: Mapping[str, Any]) -> str:
    image = text(status, "image", limit=80)
    why, message = text(waiting, "reason"), text(waiting, "message", limit=1000)
    if why == "InvalidImageName":
        return f"{image!r} is not the name of an image"
    if why == "ErrImageNeverPull":
        return f"image {image} is not on the node, and may not be pulled"
    # `Back-off pulling image "x": ErrImagePull: rpc error: code = NotFound desc = …: what it is`
    detail = message.split("desc = ", 1)[-1]
    detail = re.sub(r'^Back-off pulling image "[^"]*":?\s*', "", detail)
    detail = detail.removeprefix("ErrImagePull: ")
    detail = detail.replace(f'failed to pull and unpack image "{image}": ', "")
    return f"cannot pull image {image}{': ' + detail if detail else ''}"


def _condition(raw: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    for found in items(mapping(raw, "status"), "conditions"):
        if text(found, "type") == kind:
            return dict(found)
    return {}


def _signal(code: int) -> str:
    if not 128 < code < 160:
        return ""
    try:
        return f" ({signal.Signals(code - 128).name})"
    except ValueError:
        return ""
