"""Recordings that are torn, cut, copied, or from another version: the readable part is shown."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cockpit.model.error import CockpitError
from cockpit.model.event import Marked
from cockpit.recorder import file
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.recording import Recording, opened
from cockpit.recorder.writing import writer
from cockpit.recorder.writing.recorder import Recorder
from tests.recorder.test_recorder import own, record, script

WRITES_FOR_EVER = """
import sys, time
from pathlib import Path
from tempfile import TemporaryDirectory
from cockpit.model.event import Marked
from cockpit.recorder.writing.recorder import Recorder

recorder = Recorder(Path(sys.argv[1]))
number = 0
while True:
    number += 1
    recorder.take(Marked(at_s=time.time(), source="user", text=f"{number} " + "x" * 200))
    print(f"{time.time():.6f}", flush=True)
    time.sleep(0.002)
"""


def killed(path: Path, after_s: float) -> float:
    """A recorder that is killed in mid-write; when its last event was taken.

    `after_s`: from its first commit, which is a second after its start if the machine is not busy.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", WRITES_FOR_EVER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    last_s, until = 0.0, None
    for line in process.stdout:
        last_s = float(line)
        if until is None and has_batches(path):
            until = time.monotonic() + after_s
        if until is not None and time.monotonic() > until:
            process.send_signal(signal.SIGKILL)
            break
    rest = process.stdout.read().split()
    process.stdout.close()
    process.wait()
    return max([last_s, *(float(at_s) for at_s in rest if len(at_s) > 16)])


def has_batches(path: Path) -> bool:
    """Whether the recorder has committed events."""
    if not path.exists():
        return False
    try:
        with Recording.open(path) as found:
            return bool(found._batches)
    except CockpitError:  # the file has no tables yet
        return False


@pytest.mark.timed
@pytest.mark.parametrize("after_s", [0.7, 1.45])
def test_a_kill_costs_at_most_the_last_second_or_so(tmp_path: Path, after_s: float) -> None:
    path = tmp_path / "a.cockpit"
    last_s = killed(path, after_s)
    with Recording.open(path) as found:
        texts = [event.text for event in found.events() if isinstance(event, Marked)]
        assert last_s - found.end_s < 2.0  # a second between commits; a busy machine adds to it
        assert not found.closed
        assert not found.damage
    assert [int(text.split()[0]) for text in texts] == list(range(1, len(texts) + 1))


def test_a_recording_that_was_killed_continues(tmp_path: Path) -> None:
    path = tmp_path / "a.cockpit"
    killed(path, 0.4)
    with Recording.open(path) as found:
        before = list(found.events())
    recorder = Recorder(path)
    recorder.take(Marked(at_s=time.time(), source="user", text="again"))
    recorder.close()
    with Recording.open(path) as found:
        assert list(found.events())[:-1] == before
        assert found.closed


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a killed recorder leaves: the file and its write-ahead log."""
    for after_s in (2.0, 5.0, 11.0):
        path = tmp_path_factory.mktemp("torn") / "a.cockpit"
        killed(path, after_s)
        with Recording.open(path) as found:
            if len(found._batches) >= 4:  # a busy machine takes longer for as many
                return path
    raise AssertionError("it committed too seldom")


@pytest.mark.parametrize("seed", range(6))
def test_a_torn_log_costs_its_torn_end_and_no_more(torn: Path, tmp_path: Path, seed: int) -> None:
    with Recording.open(torn) as found:
        whole = list(found.events())
    chance = random.Random(seed)
    wal = torn.with_name("a.cockpit-wal").read_bytes()
    cut = chance.randrange(len(wal) * 2 // 3, len(wal))
    damaged = bytearray(wal[:cut])
    if seed % 2:
        damaged[cut - chance.randrange(1, 3_000)] ^= 0xFF
    path = tmp_path / "b.cockpit"
    path.write_bytes(torn.read_bytes())
    path.with_name("b.cockpit-wal").write_bytes(damaged)
    with Recording.open(path) as found:
        part = list(found.events())
        assert not found.damage
    assert part == whole[: len(part)]
    assert len(part) > 0


def test_a_file_that_is_torn_itself_is_read_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BATCH_CHARS", 20_000)
    path = tmp_path / "a.cockpit"
    record(path, script(400))
    with Recording.open(path) as found:
        known = set(map(repr, found.events()))
    whole = path.read_bytes()
    read, refused = [], []
    for seed in range(15):
        chance = random.Random(seed)
        damaged = bytearray(whole)
        for _ in range(3):
            at = chance.randrange(4_096, len(damaged) - 64)
            damaged[at : at + 64] = chance.randbytes(64)
        if seed % 3 == 0:
            del damaged[chance.randrange(8_192, len(damaged)) :]
        path.write_bytes(damaged)
        try:
            with Recording.open(path) as found:
                part = set(map(repr, found.events()))
                assert part <= known
                read.append((len(part), found.damage))
        except CockpitError as error:
            refused.append(error.what)
    assert any(damage and count for count, damage in read)
    assert all("cannot be read" in what for what in refused)


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_are_refused_with_a_sentence(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    head = b"SQLite format 3\x00" if seed % 2 else b""
    path = tmp_path / "a.cockpit"
    path.write_bytes(head + chance.randbytes(chance.randrange(10, 20_000)))
    with pytest.raises(CockpitError) as reported:
        Recording.open(path)
    assert str(path) in reported.value.what


def test_damaged_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    empty, text, other = (tmp_path / name for name in ("e.cockpit", "t.cockpit", "o.cockpit"))
    empty.touch()
    text.write_text("hello, " * 1_000)
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE facts (x)")
    db.close()
    for path, message in (
        (empty, "is empty"),
        (text, "cannot be read as a recording"),
        (other, "not a recording"),
        (tmp_path / "gone.cockpit", "There is no recording"),
        (tmp_path, "is a directory"),
    ):
        with pytest.raises(CockpitError) as reported:
            Recording.open(path)
        assert message in reported.value.what


def test_a_recording_from_a_newer_version_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.cockpit"
    record(path, script(30))
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {file.VERSION + 1}")
    db.close()
    with pytest.raises(CockpitError) as reported:
        Recording.open(path)
    assert "newer cockpit" in reported.value.what
    assert "Update cockpit" in reported.value.todo
    before = path.read_bytes()
    recorder = Recorder(path)
    recorder.take(Marked(at_s=1.0, source="user", text="x"))
    recorder.close()
    assert "newer cockpit" in recorder.trouble
    assert path.read_bytes() == before


def test_a_recording_of_an_older_version_is_read(tmp_path: Path) -> None:
    path, events = tmp_path / "a.cockpit", script(30)
    record(path, events)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 0")
        db.execute("DROP TABLE markers")
    db.close()
    with Recording.open(path) as found:
        assert own(found.events()) == own(events)
        assert found.markers == ()


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.cockpit"
    record(path, script(30))
    monkeypatch.setattr(file, "BODY_AT_MOST", 1_000)
    with Recording.open(path) as found:
        assert list(found.events()) == []
        assert "cannot be read" in found.damage


def test_a_recording_on_a_read_only_disk_is_read() -> None:
    with TemporaryDirectory(prefix="cockpit-tests-") as name:
        place = Path(name)
        events = script(30)
        record(place / "a.cockpit", events)
        (place / "a.cockpit").chmod(0o444)
        place.chmod(0o555)
        try:
            with _nobody(), opened(place / "a.cockpit") as found:
                assert own(found.events()) == own(events)
        finally:
            place.chmod(0o755)


@contextmanager
def _nobody() -> Iterator[None]:
    """Root may write anywhere: the test runs as another user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_broken_file_among_the_recordings_is_a_row_with_its_trouble(tmp_path: Path) -> None:
    library = Library(tmp_path)
    record(library.path_of("good"), script(30))
    library.path_of("bad").write_text("hello, " * 1_000)
    rows = {one.name: one for one in library.list()}
    assert rows["good"].trouble == ""
    assert "cannot be read" in rows["bad"].trouble
    assert [one.name for one in library.summaries()] == ["digits"]
