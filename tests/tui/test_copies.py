"""What is copied to the clipboard of an object: text, name, command, JSON."""

from __future__ import annotations

import json

import pytest
from textual.app import App

from cockpit.model.cluster import ClusterRef
from cockpit.tui.changes.copies import command
from cockpit.tui.dialogs.reading import Reading, _json
from cockpit.tui.view_state import Target
from tests.tui.conftest import Open, Seen
from tests.tui.simulated_kubernetes import kube

KUBE = ClusterRef("kuberay", "my run", "ml", "admin")
FLAGS = "--context admin -n ml --cluster 'my run'"


@pytest.mark.parametrize(
    ("target", "ref", "expected"),
    [
        (Target("pod", "p-1"), KUBE, f"cockpit describe pod/p-1 {FLAGS}"),
        (Target("node", "gpu-3"), KUBE, f"cockpit describe node/gpu-3 {FLAGS}"),
        (Target("job", "a;rm -r"), KUBE, f"cockpit logs 'a;rm -r' {FLAGS}"),
        (Target("rank", "3"), KUBE, f"cockpit stack 3 {FLAGS}"),
        (Target("cluster", "x"), KUBE, f"cockpit status {FLAGS}"),
        (
            Target("pod", "p-1"),
            ClusterRef("local", "demo"),
            "cockpit logs p-1 --local --cluster demo",
        ),
        (
            Target("group", "g"),
            ClusterRef("address", "head:8265"),
            "cockpit groups --address http://head:8265",
        ),
        (
            Target("pod", "gpu-1-ab1cd"),
            ClusterRef("ssh", "lab", context="/etc/my hosts.toml"),
            "cockpit logs gpu-1-ab1cd --hosts '/etc/my hosts.toml'",
        ),
    ],
)
def test_command_names_the_cluster_and_quotes_names(
    target: Target, ref: ClusterRef, expected: str
) -> None:
    assert command(target, ref) == expected


@pytest.mark.parametrize("text", ["[" * 100_000, "a: &a [x]\nb: *c", "&a [*a]", "2026-99-99"])
def test_text_that_is_no_plain_yaml_is_copied_as_it_is(text: str) -> None:
    """A stack or an error may have any text; PyYAML's C loader ends the process for the first."""
    assert _json(text) == text


async def test_answer_that_arrives_after_the_page_was_closed_is_dropped() -> None:
    page, app = Reading("rank 0", "Running py-spy on its node…"), App[None]()
    async with app.run_test() as pilot:
        await app.push_screen(page)
        await page.dismiss(None)
        await pilot.pause()
        page.fill("its stack")
        assert app.screen is not page


async def copied(seen: Seen, key: str) -> str:
    seen.app.clear_notifications()
    await seen.press(key)
    await seen.until(lambda: "Copied " in seen.toasts)
    return seen.app.clipboard


async def test_shown_object_is_copied_as_text_name_command_and_json(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("4", "y")
        await seen.sees("copy: c text · n name · m command · o JSON · esc closes")
        page = seen.app.screen
        assert isinstance(page, Reading)
        name = page.heading.removeprefix("pod ")
        assert await copied(seen, "c") == page.text
        assert await copied(seen, "n") == name
        assert await copied(seen, "m") == f"cockpit logs {name} --local --cluster demo"
        found = json.loads(await copied(seen, "o"))
        assert found["name"] == name
        assert isinstance(found["ready"], bool)


async def test_manifest_is_copied_as_json(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("4", "y")
        await seen.sees("kind: pod", "copy: c text")
        assert json.loads(await copied(seen, "o"))["kind"] == "pod"


async def test_help_offers_nothing_to_copy(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("question_mark", "n", "c")
        await seen.pilot.pause()
        assert isinstance(seen.app.screen, Reading)
        assert not seen.app.clipboard
