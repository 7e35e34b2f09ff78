"""Parse the dumps of hung ranks in the stream; implausible values are left out."""

from __future__ import annotations

import math

from cockpit.model.event import RanksDumped
from cockpit.model.hang import Collective, Dump, ProcessGroup, Reached, Stack, Thread
from cockpit.model.text import one_line
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
    return RanksDumped(
        at_s=at_s,
        source=source,
        run_id=one_line(body.run),
        attempt=body.attempt,
        dumps=tuple(map(_dump, [*dumps.values()][:DUMPS])),
        stacks=tuple(
            Stack(
                frames=tuple(one_line(frame) for frame in one.frames[:FRAMES]),
                user=one.user if one.user < min(len(one.frames), FRAMES) else -1,
                call=one_line(one.call),
                peer=one.peer,
            )
            for one in body.stacks[:STACKS]
        ),
        groups=tuple(
            ProcessGroup(
                one_line(one.name), one_line(one.description), tuple(sorted(set(one.members)))
            )
            for one in body.groups[:GROUPS]
        ),
        silent=body.silent,
    )


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
    return Dump(
        rank=one.rank,
        at_s=one.t,
        number=one.number,
        idle_s=one.idle_s,
        usual_s=one.usual_s,
        longest_s=one.longest_s,
        bound_s=one.bound_s,
        slow_bound_s=one.slow_bound_s,
        cpu_percent=_finite(one.cpu_percent),
        io_bytes_per_s=_finite(one.io_bytes_per_s),
        major_faults_per_s=_finite(one.major_faults_per_s),
        swapped_bytes=one.swapped_bytes,
        missing=one_line(one.missing),
        threads=tuple(
            Thread(one_line(thread.name), thread.stack, one_line(thread.state), thread.is_training)
            for thread in one.threads[:THREADS]
        ),
        reached=tuple(
            Reached(each.group, each.enqueued, each.completed)
            for each in one.reached[:COLLECTIVES]
            if 0 <= each.completed <= each.enqueued
        ),
        collectives=tuple(
            Collective(
                each.group,
                each.seq,
                one_line(each.op),
                one_line(each.shape),
                min(each.age_s, LONGEST_S),
                each.done,
            )
            for each in one.collectives[:COLLECTIVES]
            if each.seq > 0 and each.age_s >= 0.0
        ),
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
