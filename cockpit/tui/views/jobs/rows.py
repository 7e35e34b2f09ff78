"""Jobs as rows, newest first."""

from __future__ import annotations

from cockpit import format
from cockpit.model.run import Job
from cockpit.model.text import one_line
from cockpit.store.selectors import age_s
from cockpit.store.store import Store
from cockpit.tui.rows.text import JOB_STYLES
from cockpit.tui.widgets.table.table import Cell, Column, Row

_JOB = Column("job", "JOB", min_width=18, cut="middle")
_STATUS = Column("status", "STATUS", width=9)
_RAYJOB = (
    Column("via", "VIA", width=6),
    Column("deployment", "DEPLOYMENT", min_width=9, priority=1),
    Column("cluster", "CLUSTER", min_width=9, priority=3, cut="middle"),
)
_REST = (
    Column("time", "TIME", width=10, align="right"),
    Column("started", "STARTED", width=8, align="right", priority=1),
    Column("entrypoint", "ENTRYPOINT", min_width=12, grow=2),
    Column("message", "MESSAGE", min_width=8, grow=1, priority=2),
)


def _message(job: Job) -> str:
    """Of a running job, Ray reports only that it runs; a RayJob may wait for a queue or retry."""
    retrying = job.deployment == "Retrying"
    waits = retrying or (bool(job.queue) and not job.submitted)
    message = one_line(job.message) if job.status.is_over or waits else ""
    if not job.tries:
        return message
    failed = f"{job.tries} failed" if retrying else job.tries
    return f"{failed}: {message}" if message else failed


def job_columns(store: Store) -> tuple[Column, ...]:
    """Those of RayJobs only when there is one."""
    if any(job.rayjob for job in store.jobs.values()):
        return (_JOB, _STATUS, *_RAYJOB, *_REST)
    return (_JOB, _STATUS, *_REST)


def job_rows(store: Store, now_s: float) -> list[Row]:
    with_rayjobs = any(job.rayjob for job in store.jobs.values())
    rows = []
    jobs = sorted(store.jobs.values(), key=lambda job: -(job.started_s or float("inf")))
    for job in jobs:
        end = job.ended_s if job.ended_s is not None else now_s
        took = None if job.started_s is None else max(0.0, end - job.started_s)
        style = "muted" if job.status.is_over else ""
        rayjob = (
            Cell("RayJob" if job.rayjob else "job", "accent" if job.rayjob else "muted"),
            Cell(job.deployment or format.DASH, style),
            Cell(job.cluster or format.DASH, "muted"),
        )
        age = age_s(job.started_s, now_s)
        rows.append(
            Row(
                job.id,
                (
                    Cell(job.id, style),
                    Cell(job.status.value, JOB_STYLES[job.status]),
                    *(rayjob if with_rayjobs else ()),
                    Cell(format.duration(took), style),
                    Cell(format.DASH if age is None else f"{format.age(age)} ago", "muted"),
                    Cell(one_line(job.entrypoint), style),
                    Cell(_message(job), "bad" if job.status == "FAILED" else "muted"),
                ),
            )
        )
    return rows
