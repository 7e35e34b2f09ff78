"""Telemetry lines: skipped and counted, or a record that the store and every verb can show."""

from __future__ import annotations

import io
import json
import random
from contextlib import redirect_stdout, suppress
from itertools import islice
from typing import Any

from cockpit.cli.output.lists import rows_of
from cockpit.cli.output.status import print_status
from cockpit.cli.output.tables import print_json
from cockpit.insight.recovery.measurement import recovery
from cockpit.model.decoding.limited_json import loads
from cockpit.recorder import codec
from cockpit.sources.telemetry.events import event_of
from cockpit.sources.telemetry.records import Progress, RereadError
from cockpit.store.store import Store
from tests.events import DRILL
from tests.fuzz.cases import assert_clean, broken, broken_bytes, examine, quick_and_nightly
from tests.sources.mutated import bodies, feed
from training.telemetry import wire

HEALTHY = [
    json.loads(wire.encode(wire.Record(seq, 1000.0 + seq, body)))
    for seq, body in enumerate(islice(bodies(random.Random(3)), 60), 1)
]
LINES = broken(*HEALTHY).map(lambda raw: json.dumps(raw).encode())


@quick_and_nightly(8_000)
def test_line_is_skipped_or_a_clean_event_that_can_be_recorded(cases: int) -> None:
    def check(line: bytes) -> None:
        with suppress(wire.WireError):
            record = wire.decode(line, loads)
            event = None if record is None else event_of(record)
            if event is not None:
                assert_clean(event)
                assert codec.decode(codec.encode(event)) is not None

    examine(LINES, check, cases)


@quick_and_nightly(8_000)
def test_broken_bytes_are_skipped(cases: int) -> None:
    """By the decoder alone, whose JSON has no limits where training reads its own stream."""

    def check(line: bytes) -> None:
        with suppress(wire.WireError):
            wire.decode(line)
        progress = Progress()
        progress.begin(whole=True)
        with suppress(RereadError):
            progress.take(line)

    examine(broken_bytes(LINES), check, cases)


@quick_and_nightly(4_000)
def test_accepted_telemetry_lines_can_be_printed(cases: int) -> None:
    def check(raws: list[Any]) -> None:
        store = Store()
        for raw in raws if isinstance(raws, list) else []:
            with suppress(wire.WireError):
                record = wire.decode(json.dumps(raw).encode(), loads)
                if record is not None and (event := event_of(record)) is not None:
                    store.apply(event)
        with redirect_stdout(io.StringIO()):
            for verb in ("runs", "ranks"):
                print_json(rows_of(verb, store, 0.0))
            print_status(store, "table", 1060.0)
            print_status(store, "json", 1060.0)
            recovery(store, DRILL)

    examine(broken(HEALTHY[:20], HEALTHY[20:40]), check, cases)


@quick_and_nightly(10_000)
def test_stream_is_read_on_past_broken_lines(cases: int) -> None:
    """Lines out of order, twice and torn, by one reader into one store."""
    count = cases * 250 if cases < 1000 else cases  # most of the time is in a few lines
    became = feed(count, seed=1)
    assert sum(became.values()) == count
    assert min(became["taken"], became["skipped"], became["dropped"]) > count // 25
