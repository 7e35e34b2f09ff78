"""The measurements' own arithmetic, without measuring anything."""

from __future__ import annotations

from collections import Counter

from cockpit.store.run import RunView
from tests.bench import recovery
from tests.bench.all import PAGE, note_of, sections_of
from tests.bench.step_to_screen import Seen, delays, note_shown
from tests.bench.table import Line, Table, percentile
from tests.bench.terminal import plain


def test_a_step_counts_as_shown_when_it_or_a_later_one_is() -> None:
    seen: Seen = [(10.0, 900_005), (11.0, 900_009)]
    assert delays(seen, [(9.0, 900_003), (9.5, 900_005), (9.5, 900_006)]) == [1.0, 0.5, 1.5]
    assert delays(seen, [(10.9, 900_010)]) == [], "not shown yet"


def test_the_steps_of_each_rank_are_read_off_the_screen_by_their_first_digits() -> None:
    screen = plain(b"\x1b[3;7Hstep 900,017\x1b[0m \x1b[38;5;4m800,016\x1b[0m 1,900,099 900,1")
    first: Seen = []
    second: Seen = []
    note_shown(first, 1.0, screen, 900_000)
    note_shown(second, 1.0, screen, 800_000)
    note_shown(first, 2.0, "900,017 900,003", 900_000)
    assert (first, second) == ([(1.0, 900_017)], [(1.0, 800_016)])


def test_a_promise_that_is_not_kept_fails_the_table() -> None:
    lines = [Line("a", "1 s"), Line("b", "2 s", "≤ 1 s", False)]
    table = Table("T", "How.", lines, "quiet")
    assert not table.passed
    assert "| b | 2 s | ≤ 1 s | **FAIL** |" in table.markdown
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0


def test_text_below_the_command_of_a_section_is_kept() -> None:
    sections = sections_of(PAGE.read_text(encoding="utf-8"))
    note = note_of(sections["hang_corpus"], "hang_corpus")
    assert note.startswith("\nUnmodified scripts")
    assert sections["hang_corpus"].endswith(f", AMD EPYC\n{note}")
    assert note_of(sections["help_cost"], "help_cost") == note_of("", "help_cost") == ""


def test_time_to_catch_up_is_compared_with_the_first_new_step_and_the_repeated_steps() -> None:
    def row(caught_up_s: float | None) -> recovery.Row:
        return recovery.Row(
            case="rank-kill",
            profile="fast",
            place="local",
            detected_s=0.5,
            attempt_ended_s=0.6,
            restarted_s=1.0,
            pod_ready_s=None,
            first_step_s=4.0,
            steps_lost=20,
            beyond_checkpoint=0,
            reason="",
            caught_up_s=caught_up_s,
            repeated_s=2.0,
        )

    assert row(4.0).caught_up_share == 0.5
    assert row(None).caught_up_share is None
    table = recovery.tabled([row(12.0)], "local pods", "quiet")
    assert not [line for line in table.lines if "without a fault" in line.measure]
    (line,) = [line for line in table.lines if "caught up" in line.measure]
    assert (line.value, line.passed) == ("1.50 (1.50–1.50)", False)


def test_steps_after_a_recovery_are_compared_with_the_usual_number() -> None:
    run = RunView("r")
    run.progress.append(10.0, 100)  # the last step before the fault
    for after_s in range(1, 71):  # from step 91 on, half as fast as before for 20 s
        done = after_s / 2 if after_s <= 20 else after_s - 10
        run.progress.append(20.0 + after_s, 90 + done)
    percent = recovery.steps_percent(run, 20.0, 91, 1.0)
    assert percent is not None
    assert round(percent) == round(100 * 50 / 60)
    assert recovery.steps_percent(run, 20.0, None, 1.0) is None


def test_profiles_of_a_case_alternate_by_turns_and_what_is_measured_is_not_measured_again() -> None:
    case, both = recovery.CASES["spare"], ("fast", "default")
    done = Counter({"fast": 1})
    found = list(recovery.turns(case, both, done, 3, by_turns=True))
    assert found == [("default", 1), ("fast", 1), ("default", 1), ("fast", 1), ("default", 1)]
    assert list(recovery.turns(case, both, done, 3, by_turns=False)) == [
        ("default", 3),
        ("fast", 2),
    ]
    frozen = recovery.CASES["rank-freeze"]
    assert list(recovery.turns(frozen, both, Counter(), 2, by_turns=False)) == [("fast", 2)]
