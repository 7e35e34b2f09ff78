"""Jobs as rows, newest first."""

from __future__ import annotations

from cockpit.model.run import Job
from cockpit.model.text import one_line
from cockpit.store.select import age_s
from cockpit.store.store import Store
from cockpit.tui import format
from cockpit.tui.sentences import JOB_STYLES
from cockpit.tui.widgets.table import Cell, Column, Row

JOB_COLUMNS = (
    Column("job", "JOB"),
    Column("status", "STATUS", width=9),
    Column("took", "TOOK", width=10, align="right"),
    Column("started", "STARTED", width=8, align="right", priority=1),
    Column("entrypoint", "ENTRYPOINT", min_width=12, grow=2),
    Column("message", "MESSAGE", min_width=8, grow=1, priority=2),
)


def _message(job: Job) -> str:
    """Of a job that goes on, Ray only says that it does."""
    return one_line(job.message) if job.status.is_over else ""


def job_rows(store: Store, now_s: float) -> list[Row]:
    rows = []
    jobs = sorted(store.jobs.values(), key=lambda job: -(job.started_s or float("inf")))
    for job in jobs:
        end = job.ended_s if job.ended_s is not None else now_s
        took = None if job.started_s is None else max(0.0, end - job.started_s)
        style = "muted" if job.status.is_over else ""
        rows.append(
            Row(
                job.id,
                (
                    Cell(job.id, style),
                    Cell(job.status.value, JOB_STYLES[job.status]),
                    Cell(format.duration(took), style),
                    Cell(f"{format.age(age_s(job.started_s, now_s))} ago", "muted"),
                    Cell(one_line(job.entrypoint), style),
                    Cell(_message(job), "bad" if job.status == "FAILED" else "muted"),
                ),
            )
        )
    return rows
