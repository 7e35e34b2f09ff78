"""The report of a run has the verdict on each attempt that ended badly."""

from __future__ import annotations

from cockpit.report.document import Table
from cockpit.report.sections.attempts import attempts
from cockpit.store.store import Store
from tests.causes.corpus import RUN, attempt


def tables_of(reason: str) -> dict[str, Table]:
    store = Store()
    for event in attempt(reason):
        store.apply(event)
    blocks = attempts(store, store.runs[RUN]).blocks
    return {block.name: block for block in blocks if isinstance(block, Table)}


def test_bad_end_has_category_quote_confidence_and_advice() -> None:
    [row] = tables_of("rank 1: OSError: [Errno 28] No space left on device")["causes"].rows
    assert row[2:4] == ("storage", "Rank 1 on w-1 could not use its storage.")
    assert row[4:] == (
        "rank 1: OSError: [Errno 28] No space left on device",
        "high",
        "STOP: the storage has to be usable first",
    )


def test_attempt_that_finished_has_none() -> None:
    assert list(tables_of("finished")) == ["attempts"]
