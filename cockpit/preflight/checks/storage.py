"""Whether the storage of checkpoints is writable, shared by all pods, and has room."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from cockpit.format import bytes_text, plural
from cockpit.preflight import bucket as bucket_answers
from cockpit.preflight.demand import Demand
from cockpit.preflight.facts import Answer, Room
from cockpit.preflight.finding import Finding, State, listed

FULL_BYTES, LITTLE_BYTES = 100 << 20, 2 << 30
"""Below these, a checkpoint can probably not be written, and is close to that."""
SPILL_LIMIT = 0.95
"""Ray refuses to write to a disk that is fuller (local_fs_capacity_threshold, ray_config_def.h)."""


def storage(answers: Mapping[str, Answer], demand: Demand, why_not: str = "") -> Iterator[Finding]:
    """`why_not`: why no marker file was written."""
    if not demand.storage:
        return
    if is_bucket(demand.storage):
        return  # see `bucket`
    if "://" in demand.storage:
        found = f"{demand.storage} is not a folder of the pods; only the job can reach it."
        yield Finding("storage", State.SKIPPED, found)
        return
    places = {pod: of.facts.storage for pod, of in answers.items() if of.facts is not None}
    if not any(places.values()):
        return
    if why_not:
        yield Finding("storage", State.SKIPPED, f"{demand.storage}: {why_not}")
    elif errors := {pod: of.error for pod, of in places.items() if of is not None and of.error}:
        why = next(iter(errors.values()))
        yield Finding(
            "storage",
            State.FAILED,
            f"{listed(errors)} cannot write to {demand.storage}: {why}.",
            "Mount a volume there that the pods may write to, or set another storage_path.",
            tuple(errors),
        )
    else:
        yield from _shared(answers, demand)
    rooms = {pod: of.room for pod, of in places.items() if of is not None and of.room is not None}
    yield from _room("storage room", rooms, "Delete old checkpoints, or use a larger volume.")


def is_bucket(path: str) -> bool:
    return path.startswith("s3://")


def bucket(
    answers: Mapping[str, bucket_answers.Answer], demand: Demand, why_not: str = ""
) -> Iterator[Finding]:
    """`why_not`: why no object was written."""
    if not is_bucket(demand.storage):
        return
    place = re.sub(r"//[^/?#]*@", "//", demand.storage).partition("?")[0]
    if demand.has_s3_keys:
        why_not = "the keys of the job's own environment are not sent to the pods for a check."
    if why_not:
        yield Finding("storage", State.SKIPPED, f"{place}: {why_not}")
        return
    failed = {pod: of for pod, of in answers.items() if of.error}
    late = {pod: of.late for pod, of in answers.items() if of.late}
    unread = [pod for pod, of in answers.items() if not (of.error or of.late or of.was_read)]
    if failed:
        why, fix = _of_bucket(next(iter(failed.values())))
        found = f"{listed(failed)} cannot use {place}: {why}."
        yield Finding("storage", State.FAILED, found, fix, tuple(failed))
    elif unread and not late:
        yield Finding(
            "storage",
            State.FAILED,
            f"{place} is not shared: {listed(unread)} did not see what another pod wrote.",
            "Set the same AWS_ENDPOINT_URL, region and keys in all pods.",
            tuple(unread),
        )
    elif late:
        found = f"{place} was not tried in {listed(late)}: {next(iter(late.values()))}."
        yield Finding("storage", State.SKIPPED, found, pods=tuple(late))
    elif answers:
        by = f"shared by {plural(len(answers), 'pod')}" if len(answers) > 1 else "writable"
        yield Finding("storage", State.OK, f"{place} is {by}")


def _of_bucket(answer: bucket_answers.Answer) -> tuple[str, str]:
    """Why the bucket cannot be used, and the fix, as sentences."""
    if answer.error.startswith("access denied") and not answer.has_keys:
        return "access denied, and the pod has no credentials", (
            "Create a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for the pods: "
            "cockpit up --s3-secret NAME, or the component s3; or give their nodes a role."
        )
    why, _, fix = answer.error.partition("; ")
    return why, f"{fix[:1].upper()}{fix[1:]}." if fix else ""


def _shared(answers: Mapping[str, Answer], demand: Demand) -> Iterator[Finding]:
    checked = {pod: of.unseen for pod, of in answers.items() if of.unseen is not None}
    if len(checked) < 2:
        if len(answers) == 1:
            yield Finding("storage", State.OK, f"{demand.storage} is writable")
        elif unread := {pod: of.error for pod, of in answers.items() if of.error}:
            pod, why = next(iter(unread.items()))
            found = f"{demand.storage} is writable, but {pod} did not read it: {why}"
            yield Finding("storage", State.SKIPPED, found, pods=tuple(unread))
        return
    apart = {pod: unseen for pod, unseen in checked.items() if unseen}
    if not apart:
        count = plural(len(checked), "pod")
        yield Finding("storage", State.OK, f"{demand.storage} is shared by {count}")
        return
    reader, writers = next(iter(apart.items()))
    facts = answers[reader].facts
    kind = facts.storage.kind if facts is not None and facts.storage is not None else ""
    yield Finding(
        "storage",
        State.FAILED,
        f"{demand.storage} is not shared: {reader} does not see what {listed(writers)} wrote"
        f"{f' (file system {kind})' if kind else ''}.",
        "Mount one volume with ReadWriteMany in all pods, or set storage_path to its folder.",
        tuple(apart),
    )


def disk(answers: Mapping[str, Answer]) -> Iterator[Finding]:
    rooms = {
        pod: of.facts.disk
        for pod, of in answers.items()
        if of.facts is not None and of.facts.disk is not None
    }
    full = {pod: room for pod, room in rooms.items() if room.used_share > SPILL_LIMIT}
    if full:
        room = max(full.values(), key=lambda room: room.used_share)
        yield Finding(
            "disk",
            State.FAILED,
            f"{room.path} is {room.used_share:.0%} full in {listed(full)}.",
            f"Ray writes no objects to a disk above {SPILL_LIMIT:.0%}: free some of it.",
            tuple(full),
        )
        return
    yield from _room("disk", rooms, "Free some of it: Ray's logs and spilled objects are there.")


def _room(name: str, rooms: Mapping[str, Room], fix: str) -> Iterator[Finding]:
    if not rooms:
        return
    pod, least = min(rooms.items(), key=lambda item: item[1].free_bytes)
    little = tuple(pod for pod, room in rooms.items() if room.free_bytes < LITTLE_BYTES)
    state = (
        State.FAILED
        if least.free_bytes < FULL_BYTES
        else State.WARNING
        if least.free_bytes < LITTLE_BYTES
        else State.OK
    )
    found = f"{bytes_text(least.free_bytes)} free in {least.path}"
    if state is State.OK:
        yield Finding(name, state, found)
    else:
        yield Finding(name, state, f"{found} of {pod}.", fix, little)
