"""Keys that the configuration moves: where they work, what is shown, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cockpit.cli.main import main
from cockpit.config import file
from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.event import AlertRaised
from cockpit.store.store import Store
from cockpit.tui import keymap, keys
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.main.connecting_placeholder import starting
from cockpit.tui.rows.text import no_run
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.overview import run_panel
from tests.tui.conftest import Open
from tests.tui.simulated import START_S, digits
from tests.tui.test_drills_view import running_drill, verdicts


@pytest.fixture
def moved() -> Iterator[None]:
    """`kill` and the view Runs on other keys."""
    before = dict(keys.NUMBERS)
    keymap.use(
        keymap.parse(
            {
                "kill": "f9, x",
                "shell": "ctrl+x",
                "view_runs": "e",
                "sort": ";",
                "launch": "f8, ctrl+l",
                "abort": "f7",
                "object": "f6",
                "filter": "f5",
                "all_logs": "f4",
                "quit": "f3",
                "view_pods": "f2",
                "view_drills": "f1",
                "view_fleet": "f11",
                "view_alerts": "f12",
            }
        )
    )
    yield
    keymap.use({})
    keys.NUMBERS.update(before)


def test_text_of_an_empty_view_has_the_moved_key(moved: None) -> None:
    text = no_run(ViewState(Store(), 0.0))
    assert text == "No run yet. Press f8 to launch a job."


@pytest.mark.usefixtures("moved")
def test_hints_of_the_overview_and_of_the_start_have_the_moved_keys() -> None:
    store = Store()
    for kind in ("hang", "straggler", "loss-plateau"):
        severity = Severity.CRITICAL if kind == "hang" else Severity.WARNING
        alert = Alert(kind, Finding(kind, "rank 1", severity, kind), START_S)
        store.apply(AlertRaised(at_s=START_S, source="insight", alert=alert))
    shown = run_panel.alarms(ViewState(store, START_S), 2)
    assert shown is not None
    assert ", f4 all logs" in shown.plain
    assert "2 more (f12 shows all)" in shown.plain
    state = ViewState(Store(), START_S, chosen=False)
    assert "f11 shows the fleet" in starting(state).plain
    failed = ViewState(Store(), START_S, failure=CockpitError("No."))
    assert "f3 quits with exit code 1" in starting(failed).plain


@pytest.mark.usefixtures("moved")
async def test_hints_of_refusals_and_drills_have_the_moved_keys(cockpit: Open) -> None:
    async with (
        cockpit(simulation=digits(kill_s=None), size=(120, 40)) as seen,
        running_drill(seen, "drill pod-kill rank:1"),
    ):
        await seen.sees("f7 aborts")
        await seen.press("2")
        await seen.sees("drill pod-kill recovering", "f7 aborts")
        for line, said in (
            ("drill pod-kill", "Wait for it, or abort it with f7."),
            ("keep x", "Filter with f5, then type: keep NAME"),
            ("cluster -", "See the view Fleet: f11"),
        ):
            await seen.press("colon", *line, "enter")
            await seen.until(lambda: said in seen.toasts)  # noqa: B023
        await seen.press("1", "x")
        await seen.until(lambda: "Select a pod (f2) or a rank (2) first." in seen.toasts)
        await seen.press("f7")
        await seen.sees("Abort the drill?", "Abort (y f7)")
        await seen.press("f7")
        await seen.until(lambda: bool(verdicts(seen.app)))
        await seen.press("colon", *"drill frob", "enter")
        await seen.until(lambda: "The view of drills lists them all: f1" in seen.toasts)


def test_a_key_is_moved_and_the_others_stay() -> None:
    table = {"kill": "ctrl+k", "view_fleet": "f10"}
    assert keymap.parse(table) == table
    assert keymap.parse({}) == {}


def test_two_keys_may_change_places() -> None:
    assert keymap.parse({"kill": "D", "drill": "K"}) == {"kill": "D", "drill": "K"}


def test_views_of_their_own_may_share_a_key() -> None:
    assert keymap.parse({"stack": "C"}) == {"stack": "C"}, "C cordons in the view of nodes only"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"kil": "x"}, "no key 'kil': did you mean kill?"),
        ({"kill": "d"}, "kill and describe are both d, in overview, pods"),
        ({"kill": "f5", "drill": "f5"}, "are both f5, in overview, pods, ranks"),
        ({"pause": "m"}, "pause and mark are both m, in all views"),
        ({"view_runs": "1"}, "view_runs and view_overview are both 1, in all views"),
        ({"kill": "j"}, "cannot be j: it moves in tables"),
        ({"kill": "hyper+x"}, 'kill is a key such as "x", "f5" or "ctrl+x"'),
        ({"kill": ""}, "kill is a key such as"),
        ({"kill": 5}, "kill is a key such as"),
    ],
)
def test_a_keymap_with_a_conflict_or_an_error_is_refused(
    table: dict[str, object], why: str
) -> None:
    with pytest.raises(UsageError) as reported:
        keymap.parse(table)
    assert why in str(reported.value)


@pytest.mark.usefixtures("moved")
async def test_moved_keys_act_and_are_shown(cockpit: Open) -> None:
    async with cockpit(size=(200, 50)) as seen:
        await seen.press("2")
        await seen.sees("f9 x kill", "; sort", "e Runs")
        await seen.press("K")
        assert "Kill" not in seen.text
        await seen.press("f9")
        await seen.sees("No (n)")
        await seen.press("n", "question_mark")
        await seen.until(lambda: isinstance(seen.app.screen, Reading))
        await seen.sees("f9 x", "ctrl+x")
        await seen.press("escape", "e")
        await seen.sees("Runs · 1, 1 live")


@pytest.mark.usefixtures("moved")
async def test_key_that_several_views_use_still_works_in_the_others(cockpit: Open) -> None:
    """x selects the axis of charts, and is a key of kill in other views."""
    async with cockpit(size=(120, 40)) as seen:
        await seen.press("3", "x")
        await seen.sees("since the start")


def test_keys_verb_and_a_broken_keymap(capsys: pytest.CaptureFixture[str]) -> None:
    where = file.path()
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text('[keys]\nkill = "f9"\n')
    try:
        assert main(["keys", "-o", "json"]) == 0
        found = {row["name"]: row["key"] for row in json.loads(capsys.readouterr().out)}
        assert found["kill"] == "f9"
        where.write_text('[keys]\nkill = "d"\n')
        assert main(["keys"]) == 2
        assert "kill and describe are both d" in capsys.readouterr().err
    finally:
        where.unlink()
        keymap.use({})
