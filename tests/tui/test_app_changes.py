from __future__ import annotations

import pytest

from cockpit.backends.protocol import VERBS
from cockpit.model.cluster import ACTIONS, Capability, ClusterHealth, ClusterPattern
from cockpit.model.event import ClusterSeen
from cockpit.tui.dialogs.confirm import Confirm
from tests.tui.conftest import Open
from tests.tui.simulated import JOB, REF, START_S


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("2", "K"), "Nothing was killed."),
        (("plus",), "Nothing was scaled."),
        (("minus",), "Nothing was scaled."),
        (("S",), "Nothing was stopped."),
        (("L",), "Nothing was launched."),
    ],
)
async def test_read_only_refuses_with_the_reason(
    cockpit: Open, keys: tuple[str, ...], said: str
) -> None:
    async with cockpit(read_only=True) as seen:
        await seen.press(*keys)
        await seen.until(lambda: said in seen.toasts)
        assert "read-only" in seen.toasts
        assert not isinstance(seen.app.screen, Confirm)
        assert not seen.asked


@pytest.mark.parametrize(
    ("keys", "asked"),
    [
        (("2", "K"), "delete_pod"),
        (("minus",), "scale"),
        (("S",), ""),
        (("colon", *"drill pod-kill rank:1", "enter"), ""),
        (("colon", *"drill crash", "enter"), ""),
    ],
)
async def test_protected_cluster_needs_its_name_typed(
    cockpit: Open, keys: tuple[str, ...], asked: str
) -> None:
    async with cockpit(protected=[ClusterPattern(cluster="de*")]) as seen:
        await seen.press(*keys)
        await seen.until(lambda: isinstance(seen.app.screen, Confirm))
        dialog = seen.app.screen
        assert isinstance(dialog, Confirm)
        assert dialog.lines[0] == "Cluster: local cluster demo. It is protected."
        assert dialog.typed == "demo"
        await seen.press("y", "enter")
        assert seen.app.screen is dialog, "y is no answer here"
        assert not seen.simulation.backend.asked
        if asked:
            await seen.press("backspace", *"demo", "enter")
            await seen.until(lambda: bool(seen.asked))
            assert seen.asked[0][0] == asked
        if seen.app.conducting is not None:
            await seen.press("X", "y")
            await seen.until(lambda: seen.app.conducting is None)


async def test_each_question_names_the_cluster_first(cockpit: Open) -> None:
    async with cockpit(protected=[ClusterPattern(cluster="other")]) as seen:
        await seen.press("minus")
        await seen.sees("Cluster: local cluster demo.", "Scale group workers from 2 to 1 pod.")
        assert isinstance(seen.app.screen, Confirm)
        assert not seen.app.screen.typed
        await seen.press("n", "L")
        await seen.sees("Launch a job · demo")


async def test_change_without_permission_is_refused_with_the_reason(cockpit: Open) -> None:
    from tests.tui.simulated import digits

    simulation = digits()
    simulation.backend.denied = {"scale": "No RBAC: patch rayclusters."}
    async with cockpit(simulation=simulation) as seen:
        await seen.press("plus")
        await seen.until(lambda: "No RBAC: patch rayclusters." in seen.toasts)


async def test_scaling_asks_and_names_both_counts(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("plus")
        await seen.sees("Scale up?", "Scale group workers from 2 to 3 pods")
        await seen.press("y")
        await seen.until(lambda: bool(seen.asked))
        assert seen.asked == [("scale", "workers", "3")]


async def test_scaling_without_a_worker_group_is_refused(cockpit: Open) -> None:
    async with cockpit(at_s=-1) as seen:
        await seen.press("plus")
        await seen.until(lambda: "No worker group is selected." in seen.toasts)
        assert "Groups: none yet." in seen.toasts


async def test_scaling_by_command_is_clamped_and_reports_it(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("colon", *"scale workers 9", "enter")
        await seen.sees("from 2 to 4 pods", "9 is above the group's max of 4: limited to 4.")
        await seen.press("y")
        await seen.until(lambda: seen.asked == [("scale", "workers", "4")])


async def test_stopping_the_job_of_the_run_asks(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("S")
        await seen.sees("Stop this job?", JOB)
        await seen.press("y")
        await seen.until(lambda: seen.simulation.ray.jobs[JOB]["status"] == "STOPPED")
        await seen.until(lambda: f"Stopping\nJob {JOB}." in seen.toasts)


async def test_resume_names_a_job_and_not_the_cluster(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("colon", *f"resume {JOB}", "enter")
        await seen.sees("Resume this job?", JOB, "It continues from its last checkpoint")


async def test_refusals_one_after_another_do_not_pile_up(cockpit: Open) -> None:
    async with cockpit(read_only=True) as seen:
        await seen.press("plus", "minus", "S", "L", "2", "K")
        await seen.until(lambda: "Nothing was killed." in seen.toasts)
        assert seen.toasts.count("Nothing was") == 1, "the newest alone is shown"


async def test_quitting_asks_nothing_when_the_cluster_no_longer_exists_already(
    cockpit: Open,
) -> None:
    async with cockpit(ends="the cluster demo") as seen:
        seen.simulation.session.dispatch(
            ClusterSeen(at_s=START_S + 60, source="backend", ref=REF, health=ClusterHealth.DOWN)
        )
        await seen.until(lambda: seen.app.store.health is ClusterHealth.DOWN)
        await seen.press("q")
        await seen.until(lambda: seen.app.return_value is not None)


async def test_quitting_asks_while_a_cluster_that_is_down_is_there(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.backends.local.status", lambda name: object())
    async with cockpit(ends="the cluster demo") as seen:
        seen.simulation.session.dispatch(
            ClusterSeen(at_s=START_S + 60, source="backend", ref=REF, health=ClusterHealth.DOWN)
        )
        await seen.until(lambda: seen.app.store.health is ClusterHealth.DOWN)
        await seen.press("q")
        await seen.sees("Quit?", "Quitting deletes the cluster demo.")


async def test_quitting_asks_only_when_something_goes_down_with_it(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("q")
        await seen.until(lambda: seen.app.return_value is not None)
        assert seen.app.return_code == 0
    async with cockpit(ends="the cluster demo") as seen:
        await seen.press("q")
        await seen.sees("Quit?", "Quitting deletes the cluster demo.")
        await seen.press("n")
        assert seen.app.return_value is None
        await seen.press("q", "y")
        await seen.until(lambda: seen.app.return_value is not None)


async def test_refusal_without_a_reason_names_the_action_in_words(cockpit: Open) -> None:
    async with cockpit() as seen:
        seen.app.capabilities = dict.fromkeys(VERBS, Capability(False))
        assert seen.app.refusal("delete_pod") == "You do not have permission to delete pods here."
    assert set(ACTIONS) == set(VERBS)


async def test_surplus_arguments_of_a_command_are_refused_with_its_usage(cockpit: Open) -> None:
    async with cockpit() as seen:
        for line, said in (
            (f"stop {JOB} x", "stop takes at most 1 argument.\nUsage: stop JOB"),
            (f"delete {JOB} x", "delete takes at most 1 argument.\nUsage: delete JOB"),
            ("kill rank:1 5 x", "kill takes at most 2 arguments.\nUsage: kill POD|RANK [GRACE]"),
            ("suspend demo", "suspend takes no argument.\nUsage: suspend"),
        ):
            await seen.press("colon", *line, "enter")
            await seen.until(lambda: said in seen.toasts)  # noqa: B023
            assert not isinstance(seen.app.screen, Confirm)
        await seen.press("colon", *"mark after the change", "enter")
        await seen.until(lambda: "Marked this moment: after the change" in seen.toasts)
        assert not seen.asked
