"""What the UI keeps between starts: commands, clusters, filters and columns."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cockpit.config import paths
from cockpit.tui.commands.commands import matching
from cockpit.tui.remembered import MOST_COMMANDS, Memory, Remembered
from cockpit.tui.widgets.table.columns import Column, lay_out
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import START_S
from tests.tui.simulated_kubernetes import OTHER, REF, STAGING, fleet, kube


def test_file_is_private_and_read_by_the_next_start() -> None:
    memory = Memory()
    memory.change(lambda now: now.with_command("kill 1"))
    memory.change(lambda now: now.with_filter("pods", "broken", "crash"))
    path = paths.state_dir() / "ui.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Memory().now == memory.now
    assert memory.now.commands == ("kill 1",)


def test_change_of_another_ui_is_kept() -> None:
    one, two = Memory(), Memory()
    one.change(lambda now: now.with_favorite(REF))
    two.change(lambda now: now.with_command("pods"))
    assert two.now.favorites == (REF,)


def test_broken_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ui.json"
    path.write_text('{"commands": 7')
    memory = Memory(path)
    assert memory.now == Remembered()
    memory.change(lambda now: now.with_command("pods"))
    assert Memory(path).now.commands == ("pods",)


def test_file_of_another_version_keeps_what_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "ui.json"
    path.write_text('{"commands": ["pods"], "favorites": ["demo"], "columns": 7, "new": {}}')
    memory = Memory(path)
    assert memory.now == Remembered(commands=("pods",))
    memory.change(lambda now: now.with_command("jobs"))
    assert Memory(path).now.commands == ("pods", "jobs")


def test_all_changes_are_kept_where_they_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    memory = Memory(tmp_path / "ui.json")
    with monkeypatch.context() as full:
        full.setattr(paths, "replace_file", refused)
        with pytest.raises(OSError, match="No space"):
            memory.change(lambda now: now.with_favorite(REF))
        with pytest.raises(OSError, match="No space"):
            memory.change(lambda now: now.with_command("pods"))
    assert memory.now == Remembered(commands=("pods",), favorites=(REF,))
    memory.change(lambda now: now.with_command("jobs"))
    assert Memory(tmp_path / "ui.json").now.favorites == (REF,)


def test_lists_are_bounded_and_without_duplicates() -> None:
    now = Remembered()
    for number in range(2 * MOST_COMMANDS):
        now = now.with_command(f"mark {number}").with_cluster(REF).with_cluster(OTHER)
    assert len(now.commands) == MOST_COMMANDS
    assert now.with_command("mark 150").commands[-1] == "mark 150"
    assert now.recent == (OTHER, REF)
    assert now.with_favorite(REF).with_favorite(REF).favorites == ()
    kept = now.with_filter("pods", "a", "x")
    assert kept.with_filter("pods", "a", "").filters == {"pods": {}}


def test_completion_falls_back_to_letters_in_order() -> None:
    names = ["overview", "ranks", "unsuspend", "suspend"]
    assert matching("su", names) == ["suspend"]
    assert matching("usp", names) == ["unsuspend", "suspend"]
    assert matching("ovw", names) == ["overview"]
    assert matching("xyz", names) == []


def test_chosen_columns_are_laid_out_in_their_order() -> None:
    columns = [Column(key, key.upper(), width=6, priority=n) for n, key in enumerate("abcd")]
    widest = [6] * 4

    def keys(room: int, *chosen: str) -> list[str]:
        return [place.column.key for place in lay_out(columns, widest, room, chosen)]

    assert keys(80, "d", "a") == ["d", "a"]
    assert keys(15, "d", "a", "b") == ["d", "a"], "the last one is hidden first"
    assert keys(80, "gone") == ["a", "b", "c", "d"]


def test_narrow_table_hides_columns_before_none_can_be_read() -> None:
    columns = [Column(key, key.upper(), width=8) for key in "abcd"]
    assert [place.column.key for place in lay_out(columns, [8] * 4, 20)] == ["a", "b"]


async def typed(seen: Seen, line: str) -> None:
    await seen.press(*f":{line}", "enter")


async def test_history_is_that_of_the_last_start(cockpit: Open) -> None:
    async with cockpit() as seen:
        await typed(seen, "mark lr was changed")
        await seen.until(lambda: bool(seen.app.store.marks))
    async with cockpit() as seen:
        await seen.press(":", "up")
        await seen.sees("mark lr was changed")


async def test_filter_is_saved_and_applied_by_name(cockpit: Open) -> None:
    async with cockpit(size=(120, 40)) as seen:
        await seen.press("4")
        await typed(seen, "keep broken")
        await seen.until(lambda: "no filter to save" in seen.toasts)
        await seen.press("/", *"head", "enter")
        await typed(seen, "keep head")
        await seen.press("escape")
        await seen.sees("Pods · 3")
        await typed(seen, "filter head")
        await seen.sees("1 of 3 with “head”")
        await typed(seen, "drop head")
        await typed(seen, "filter head")
        await seen.until(lambda: "has no filter 'head'" in seen.toasts)


async def test_columns_are_chosen_and_kept(cockpit: Open) -> None:
    async with cockpit(size=(120, 40)) as seen:
        await seen.press("4")
        await typed(seen, "columns phase pod")
        await seen.until(lambda: seen.text.splitlines()[3].split() == ["PHASE", "POD"])
        await typed(seen, "columns nonsense")
        await seen.until(lambda: "There is no column" in seen.toasts)
    async with cockpit(size=(120, 40)) as seen:
        await seen.press("4")
        await seen.until(lambda: seen.text.splitlines()[3].split() == ["PHASE", "POD"])
        await typed(seen, "columns all")
        await seen.until(lambda: "RST" in seen.text.splitlines()[3])


async def test_favorite_cluster_is_first_and_the_one_before_is_found(cockpit: Open) -> None:
    Memory().change(lambda now: now.with_cluster(STAGING))
    async with cockpit(size=(120, 40), simulation=kube(), fleet=fleet(START_S + 60)) as seen:
        await seen.press("0")
        await typed(seen, "favorite staging/llm-train")
        await seen.sees("★")
        first = seen.text.splitlines()[4]
        assert "★" in first
        assert "staging" in first
        assert seen.app.memory.now.recent[:2] == (REF, STAGING)
        await seen.press("home", "*")
        await seen.until(lambda: "★" not in seen.text)
