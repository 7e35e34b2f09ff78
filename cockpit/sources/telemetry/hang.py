"""Parse the dumps of hung ranks in the stream; implausible values are left out."""

from __future__ import annotations

import math

from cockpit.model.event import RanksDumped
from cockpit.model.hang import Collective, Dump, ProcessGroup, Reached, Stack, Thread
from cockpit.model.text import one_line
from cockpit.sources.telemetry.same_fields import copied
from training.telemetry import wire

DUMPS = 20_000
STACKS = 20_000
GROUPS = 10_000
THREADS = 32
FRAMES = 64
COLLECTIVES = 256
LONGEST_S = 366 * 86_400.0


def ranks_dumped(at_s: float, source: str, body: wire.Hang) -> RanksDumped:
    dumps = {dump.rank: dump for dump in body.dumps if _is_plausible(dump)}
    return copied(
        RanksDumped,
        body,
        at_s=at_s,
        source=source,
        run_id=one_line(body.run),
        dumps=tuple(map(_dump, [*dumps.values()][:DUMPS])),
        stacks=tuple(map(_stack, body.stacks[:STACKS])),
        groups=tuple(
            copied(ProcessGroup, one, members=tuple(sorted(set(one.members))))
            for one in body.groups[:GROUPS]
        ),
    )


def _stack(one: wire.Stack) -> Stack:
    user = one.user if one.user < min(len(one.frames), FRAMES) else -1
    return copied(Stack, one, frames=tuple(map(one_line, one.frames[:FRAMES])), user=user)


def _is_plausible(dump: wire.Dump) -> bool:
    seconds = (
        dump.idle_s,
        dump.longest_s,
        dump.bound_s,
        dump.slow_bound_s,
        dump.usual_s or 0.0,
    )
    return all(0.0 <= one <= LONGEST_S for one in seconds)


def _dump(one: wire.Dump) -> Dump:
    return copied(
        Dump,
        one,
        at_s=one.t,
        cpu_percent=_finite(one.cpu_percent),
        io_bytes_per_s=_finite(one.io_bytes_per_s),
        major_faults_per_s=_finite(one.major_faults_per_s),
        threads=tuple(copied(Thread, thread) for thread in one.threads[:THREADS]),
        reached=tuple(
            copied(Reached, each)
            for each in one.reached[:COLLECTIVES]
            if 0 <= each.completed <= each.enqueued
        ),
        collectives=tuple(
            copied(Collective, each, age_s=min(each.age_s, LONGEST_S))
            for each in one.collectives[:COLLECTIVES]
            if each.seq > 0 and each.age_s >= 0.0
        ),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
