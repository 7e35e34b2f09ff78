"""At any time, a replay has the store that was live at that time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from cockpit.model.event import Event
from cockpit.recorder.reading import player as module
from cockpit.recorder.reading.player import Player, bytes_of
from cockpit.recorder.reading.recording import Recording
from cockpit.store.series import Curves, Series
from cockpit.store.store import Store
from tests.recorder.test_recorder import record, script
from tests.tui.simulated import RUN, START_S


@dataclass(slots=True)
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    path = tmp_path_factory.mktemp("player") / "a.cockpit"
    record(path, script(300))
    with Recording.open(path) as found:
        yield found


def plain(value: Any) -> Any:
    """All that is in a store, as what can be compared."""
    if isinstance(value, Curves):
        return {name: plain(value[name]) for name in value}
    if isinstance(value, Series):
        return list(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Struct) and not value.__struct_config__.frozen:
        names = [name for name in value.__struct_fields__ if name != "version"]
        return [(name, plain(getattr(value, name))) for name in names]
    return list(value) if hasattr(value, "appendleft") else value


def same(one: Store, other: Store) -> bool:
    return bool(plain(one) == plain(other))


def test_replay_advances_with_the_clock_at_its_speed(recording: Recording) -> None:
    wall = Clock()
    player = Player(recording, speed=10, wall=wall)
    player.advance()
    assert player.position_s == START_S
    wall.now_s = 5.0
    assert player.advance()
    assert player.position_s == START_S + 50
    assert same(player.store, recording.store(START_S + 50))


def test_a_pause_holds_it_and_costs_no_time(recording: Recording) -> None:
    wall = Clock()
    player = Player(recording, speed=10, wall=wall)
    wall.now_s = 1.0
    player.advance()
    player.play()
    wall.now_s = 100.0
    player.advance()
    assert player.position_s == START_S + 10
    player.play()
    wall.now_s = 101.0
    player.advance()
    assert player.position_s == START_S + 20


def test_wherever_it_is_sent_the_store_is_as_it_was(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEYFRAME_WORK_S", 0.0)
    monkeypatch.setattr(module, "KEYFRAMES_KEPT", 20)
    player, chance = Player(recording, paused=True), random.Random(3)
    for _ in range(40):
        to_s = START_S + chance.uniform(-5, 310)
        player.seek(to_s)
        player.settle()
        assert player.position_s == min(max(to_s, recording.begin_s), recording.end_s)
        assert same(player.store, recording.store(player.position_s))


def test_going_back_changes_the_version_that_views_compare(recording: Recording) -> None:
    player = Player(recording, paused=True)
    store, drawn = player.store, set()
    for at_s in (100, 50, 0, 200, 100):
        player.seek(START_S + at_s)
        player.settle()
        assert store.version not in drawn
        drawn.add(store.version)
    assert player.store is store


def test_going_back_starts_at_the_nearest_keyframe(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEYFRAME_WORK_S", 0.0)
    player = Player(recording, paused=True)
    player.seek(recording.end_s)
    player.settle()
    applied = list[Event]()
    apply = Store.apply

    def counting(self: Store, event: Event) -> None:
        applied.append(event)
        apply(self, event)

    monkeypatch.setattr(Store, "apply", counting)
    player.move(-10)
    player.settle()
    assert len(applied) < 150  # of about 900
    assert same(player.store, recording.store(recording.end_s - 10))


def test_keyframes_are_bounded_and_still_lead_everywhere(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEYFRAME_WORK_S", 0.0)
    monkeypatch.setattr(module, "KEYFRAME_BYTES", 1)
    player = Player(recording, paused=True)
    player.seek(recording.end_s)
    player.settle()
    assert bytes_of(player._keyframes) > 1
    assert len(player._keyframes) <= 5  # of about 28
    for back_s in (5, 120, 60):
        player.move(-back_s)
        player.settle()
        assert same(player.store, recording.store(player.position_s))


def test_a_long_way_no_longer_exists_in_parts_that_leave_the_screen_alive(
    recording: Recording,
) -> None:
    work = Clock()

    def ticking() -> float:
        work.now_s += 0.01
        return work.now_s

    player = Player(recording, paused=True, work=ticking)
    player.seek(recording.end_s)
    parts = 0
    while player.seeking:
        player.advance(0.02)
        parts += 1
    assert parts > 5
    assert same(player.store, recording.store())


def test_at_the_end_it_stops_and_space_begins_again(recording: Recording) -> None:
    wall = Clock()
    player = Player(recording, speed=1_000, wall=wall)
    wall.now_s = 1.0
    player.advance()
    assert player.at_end
    assert player.paused
    player.play()
    player.advance()
    assert player.position_s == recording.begin_s
    assert not player.paused


def test_markers_are_where_something_happened(recording: Recording) -> None:
    assert [(m.kind, m.at_s - START_S) for m in recording.markers] == [
        ("attempt", 16),
        ("drill", 80),
        ("attempt", 94),
    ]
    player = Player(recording, paused=True)
    found = player.to_marker(1)
    player.settle()
    assert found is not None
    assert found.text == "attempt 1"
    assert player.store.runs[RUN].attempt is not None
    assert player.to_marker(1) == recording.markers[1]
    player.settle()
    assert len(player.store.drills) == 1
    assert player.to_marker(-1) == recording.markers[0]
    assert player.to_marker(-1) is None
    player.seek(recording.end_s)
    assert player.to_marker(1) is None


def test_speeds_go_up_and_down_by_steps() -> None:
    player = Player.__new__(Player)
    for speed, faster, slower in ((1.0, 2.0, 0.5), (7.0, 10.0, 5.0), (1e3, 1e3, 300.0)):
        player.speed = speed
        player.change_speed(1)
        assert player.speed == faster
        player.speed = speed
        player.change_speed(-1)
        assert player.speed == slower


def test_an_empty_recording_can_be_replayed(tmp_path: Path) -> None:
    record(tmp_path / "a.cockpit", [])
    with Recording.open(tmp_path / "a.cockpit") as found:
        player = Player(found)
        assert not player.advance()
        player.move(-10)
        player.settle()
        assert player.at_end
        assert player.store.version >= 0
