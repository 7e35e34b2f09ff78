from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from cockpit.model.cluster import ClusterHealth
from cockpit.model.error import UnreachableError
from cockpit.model.event import (
    GroupsListed,
    JobsListed,
    KubernetesNodesListed,
    Notice,
    PodsListed,
    SourceHealth,
)
from cockpit.session.session import Source
from cockpit.tui.dialogs.confirm import Confirm
from cockpit.tui.dialogs.launch import Launch
from cockpit.tui.dialogs.reading import Reading
from tests.simulated_backend import ScriptedBackend
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import START_S, digits
from tests.tui.simulated_kubernetes import CRASHED, NO_ROOM, kube, many


def plain(seen: Seen) -> str:
    """The UI's text, as one long line."""
    return " ".join(seen.text.split())


async def test_the_header_names_context_namespace_and_cluster_however_long(cockpit: Open) -> None:
    async with cockpit(simulation=kube(), size=(200, 30)) as seen:
        await seen.sees("cluster/prod-gpu / ml-research / llm-train ● degraded", "service proxy")
        await seen.pilot.resize_terminal(80, 24)
        await seen.sees("arn:…-gpu / ml-research / llm-train ● degraded")


async def test_a_pod_that_does_not_start_reports_why_in_full_when_it_is_selected(
    cockpit: Open,
) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("4")
        await seen.sees("GPUS", "RST")
        await seen.press("j", "j")
        await seen.until(lambda: CRASHED in plain(seen))
        await seen.press("j")
        await seen.until(lambda: NO_ROOM in plain(seen))
        await seen.sees("llm-train-gpu-worker-8bd2w")


async def test_replicas_of_several_hosts_are_distinguished(cockpit: Open) -> None:
    async with cockpit(simulation=kube(), size=(200, 50)) as seen:
        await seen.press("4")
        await seen.sees("REPLICA", "slice-x9", "K8S NODE", "gpu-pool-b-1")
        await seen.press("1")
        await seen.sees("slice (2 hosts)", "gpu (auto)", "NOTE", "queued 3rd in team-a")


async def test_scaling_hosts_counts_replicas(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("colon", *"scale slice +1", "enter")
        await seen.sees("Scale group slice from 1 to 2 replicas of 2 pods.")
        await seen.press("y")
        await seen.until(lambda: seen.asked == [("scale", "slice", "2")])


async def test_scaling_an_autoscaled_group_reports_what_will_undo_it(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("plus")
        await seen.sees("Ray's autoscaler removes workers that are idle", "At present: queued 3rd")
        await seen.press("n", "minus")
        await seen.sees("Scale down?")
        assert "keeps busy workers" in seen.text
        assert "cockpit scale gpu N" in seen.text


async def test_pods_that_are_still_being_read_are_no_full_list(cockpit: Open) -> None:
    simulation = many(1000)
    simulation.advance(0)
    simulation.session.drain()
    pods = tuple(simulation.session.store.pods.values())[:250]
    simulation.session.dispatch(PodsListed(at_s=START_S, source="backend", pods=pods, more=True))
    async with cockpit(simulation=simulation, at_s=0) as seen:
        await seen.press("4")
        await seen.sees("Pods · 1,001 pods, 250 read so far")
        await seen.press("G")
        await seen.sees(f"{pods[1].name} · group gpu")


async def test_of_many_pods_any_can_be_reached_sorted_and_found(cockpit: Open) -> None:
    async with cockpit(simulation=many(5000), at_s=0, size=(120, 40)) as seen:
        await seen.press("4")
        await seen.sees("Pods · 5,001")
        await seen.press("G")
        pods = list(seen.app.store.pods.values())
        await seen.sees(pods[1].name)
        await seen.press("g", "slash", *pods[777].name[-5:], "enter")
        await seen.sees(f"Pods · 1 of 5,001 with “{pods[777].name[-5:]}”", pods[777].name)


async def test_a_pod_that_changes_keeps_the_cursor(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("4", "j", "j", "j")
        await seen.until(lambda: NO_ROOM in plain(seen))
        pods = tuple(
            replace(pod, host="gpu-pool-a-1", reason="pulling image") if not pod.host else pod
            for pod in reversed(seen.app.store.pods.values())
        )
        seen.simulation.session.dispatch(PodsListed(at_s=START_S + 60, source="backend", pods=pods))
        await seen.sees("llm-train-gpu-worker-8bd2w · group gpu · on gpu-pool-a-1")
        await seen.until(lambda: "pulling image" in plain(seen))


async def test_nodes_show_state_pods_ranks_and_gpus_in_use(cockpit: Open) -> None:
    async with cockpit(simulation=kube(), size=(140, 30)) as seen:
        await seen.press("9")
        await seen.sees("K8s nodes · 5", "cordoned", "not ready", "kubelet stopped posting")
        (line,) = (line for line in seen.text.splitlines() if line.startswith("gpu-pool-a-2"))
        assert line.split()[1:6] == ["cordoned", "2", "1", "–", "16/16"]


async def test_suspect_nodes_have_a_score(cockpit: Open) -> None:
    async with cockpit(simulation=kube(), size=(140, 30)) as seen:
        await seen.press("9")
        await seen.sees("SUSPECT", "kubelet stopped posting")
        (line,) = (line for line in seen.text.splitlines() if "kubelet stopped posting" in line)
        assert line.split("not ready")[1].split()[2] == "5"


async def test_cordoning_names_the_node_and_who_runs_there(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("9", "j", "C")
        await seen.sees("Cordon this K8s node?", "gpu-pool-a-1", "worker-4xk9p", "Ranks there: 0.")
        await seen.press("enter")
        await seen.until(lambda: not isinstance(seen.app.screen, Confirm))
        assert seen.asked == []
        await seen.press("C", "y")
        await seen.until(lambda: seen.asked == [("cordon", "gpu-pool-a-1", "True")])
        await seen.press("j", "C")
        await seen.sees("Uncordon this K8s node?", "gpu-pool-a-2")
        await seen.press("y")
        await seen.until(lambda: seen.asked[1:] == [("cordon", "gpu-pool-a-2", "False")])


async def test_node_that_was_replaced_since_under_its_name_is_not_cordoned(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, bool, str]] = []

    async def cordon(self: ScriptedBackend, node: str, cordoned: bool, *, uid: str = "") -> None:
        asked.append((node, cordoned, uid))

    monkeypatch.setattr(ScriptedBackend, "cordon", cordon)
    async with cockpit(simulation=kube()) as seen:
        known = seen.app.store.kubernetes_nodes.values()
        nodes = tuple(replace(node, uid=f"uid of {node.name}") for node in known)
        seen.app.store.apply(
            KubernetesNodesListed(at_s=START_S + 60, source="backend", nodes=nodes)
        )
        await seen.press("colon", *"cordon gpu-pool-a-1", "enter")
        await seen.sees("Cordon this K8s node?")
        await seen.press("y")
        await seen.until(lambda: asked == [("gpu-pool-a-1", True, "uid of gpu-pool-a-1")])


async def test_suspending_names_what_goes_and_wants_the_clusters_name(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("U")
        await seen.sees("deletes all 7 pods", "llm-sft-x7k2p", "Type llm-train to confirm.")
        await seen.press("y", "enter")
        assert isinstance(seen.app.screen, Confirm)
        await seen.press("backspace", *"llm-train", "enter")
        await seen.until(lambda: seen.asked == [("suspend", "True")])


async def test_the_same_key_unsuspends_a_suspended_cluster(cockpit: Open) -> None:
    async with cockpit(simulation=kube(ClusterHealth.SUSPENDED)) as seen:
        await seen.sees("● suspended")
        await seen.press("U")
        await seen.sees("Unsuspend the cluster?", "Creates the head and 6 workers again")
        await seen.press("y")
        await seen.until(lambda: seen.asked == [("suspend", "False")])


@pytest.mark.parametrize(
    ("keys", "what", "verb"),
    [
        (("U",), "Nothing was suspended.", "suspend"),
        (("9", "C"), "Nothing was cordoned.", "cordon"),
        (("colon", *"unsuspend", "enter"), "Nothing was unsuspended.", "suspend"),
        (("colon", *"uncordon gpu-pool-a-2", "enter"), "Nothing was uncordoned.", "cordon"),
        (("9", "j", "j", "C"), "Nothing was uncordoned.", "cordon"),
        (("4", "x"), "No shell was opened.", "exec"),
        (("4", "d"), "Nothing was described.", "describe"),
    ],
)
async def test_forbidden_action_is_refused_with_the_reason(
    cockpit: Open, keys: tuple[str, ...], what: str, verb: str
) -> None:
    simulation = kube()
    simulation.backend.denied = {verb: f"you may not {verb} in namespace ml-research"}
    async with cockpit(simulation=simulation) as seen:
        await seen.press(*keys)
        await seen.until(lambda: what in seen.toasts)
        assert f"you may not {verb} in namespace ml-research" in seen.toasts
        assert not isinstance(seen.app.screen, Confirm)


async def test_suspending_before_the_first_data_needs_the_name_typed(cockpit: Open) -> None:
    async with cockpit(simulation=kube(), at_s=-1) as seen:
        await seen.press("U")
        await seen.until(lambda: isinstance(seen.app.screen, Confirm))
        dialog = seen.app.screen
        assert isinstance(dialog, Confirm)
        assert dialog.typed == "llm-train"


async def test_read_only_changes_nothing(cockpit: Open) -> None:
    async with cockpit(simulation=kube(), read_only=True) as seen:
        await seen.press("9", "C")
        await seen.until(lambda: "Nothing was cordoned." in seen.toasts)
        await seen.press("d")
        await seen.sees("node cpu-pool-1 · described")
    async with cockpit(read_only=True, at_s=-1) as seen:
        await seen.press("4", "x")
        await seen.until(lambda: "No shell was opened." in seen.toasts)


async def test_objects_and_descriptions_are_those_of_the_cluster(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("o", "y")
        await seen.sees("cluster llm-train", "kind: cluster")
        await seen.press("escape", "4", "d")
        await seen.sees("pod llm-train-head-7zq4m · described")
        await seen.press("escape", "5", "y")
        await seen.sees("rayjob llm-sft", "kind: rayjob")
        await seen.press("escape", "j", "y")
        await seen.sees("job raysubmit_smoke00", "status: SUCCEEDED")
        # A time is no number of seconds to a reader.
        await seen.sees('started_s: "2025-11-21 07:45:00"')


async def test_an_object_is_copied_to_the_clipboard(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("4", "y")
        await seen.sees("copy: c text", "kind: pod")
        page = seen.app.screen
        assert isinstance(page, Reading)
        await seen.press("c")
        await seen.until(lambda: "Copied " in seen.toasts)
        assert seen.app.clipboard == page.text


async def test_an_object_that_cannot_be_read_reports_why(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = kube()

    async def gone(self: object, kind: str, name: str) -> str:
        raise UnreachableError("The API server does not answer.", "Timed out after 10 s.")

    monkeypatch.setattr(type(simulation.backend), "manifest", gone)
    async with cockpit(simulation=simulation) as seen:
        await seen.press("4", "y")
        await seen.until(lambda: "The API server does not answer." in seen.toasts)
        await seen.until(lambda: not isinstance(seen.app.screen, Reading))


async def test_a_job_can_be_launched_as_a_rayjob_where_that_is_allowed(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("L")
        await seen.sees("As a job over HTTP")
        await seen.press("ctrl+r")
        await seen.sees("As a RayJob resource")
        await seen.press("ctrl+s")
        await seen.until(lambda: "digits is RayJob digits-" in seen.toasts)
        assert [call[0] for call in seen.asked] == ["create_rayjob"]
        assert not seen.simulation.ray.submitted
    async with cockpit(simulation=digits()) as seen:
        await seen.press("L")
        await seen.until(lambda: isinstance(seen.app.screen, Launch))
        await seen.press("ctrl+r", "ctrl+s")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))
        assert not seen.asked


def watch_log_sources(seen: Seen) -> list[str]:
    """The streams whose source the UI requests."""
    asked: list[str] = []
    connection = seen.app.connection
    assert connection is not None
    original = connection.log_source

    def log_source(stream: str) -> Source | None:
        asked.append(stream)
        return original(stream) if original is not None else None

    seen.app.connection = replace(connection, log_source=log_source)
    return asked


async def test_rayjobs_stand_beside_jobs_and_stop_alike(cockpit: Open) -> None:
    async with cockpit(simulation=kube(), size=(120, 30)) as seen:
        asked = watch_log_sources(seen)
        jobs = tuple(seen.app.store.jobs.values())
        late = [replace(job, submitted=False) if job.rayjob else job for job in jobs]
        dispatch = seen.simulation.session.dispatch
        dispatch(JobsListed(at_s=START_S + 61, source="backend", jobs=tuple(late)))
        dispatch(JobsListed(at_s=START_S + 61, source="ray", jobs=()))
        await seen.until(lambda: not any(job.submitted for job in seen.app.store.jobs.values()))
        await seen.press("5")
        await seen.sees("VIA", "DEPLOYMENT", "RayJob", "Running")
        await seen.sees("waiting until the operator has submitted the job")
        assert asked == [], "Ray would answer that it does not know the job"
        dispatch(JobsListed(at_s=START_S + 62, source="backend", jobs=jobs))
        await seen.until(lambda: "job:llm-sft-x7k2p" in asked)
        await seen.press("S")
        await seen.sees("It is RayJob llm-sft, on cluster llm-train.")
        await seen.press("y")
        await seen.until(lambda: seen.asked == [("stop_rayjob", "llm-sft")])


async def test_the_log_before_a_restart_is_another_stream(cockpit: Open) -> None:
    async with cockpit(simulation=kube()) as seen:
        await seen.press("4", "P")
        await seen.until(lambda: "has not restarted" in seen.toasts)
        await seen.press("j", "j", "P")
        await seen.sees("previous:llm-train-gpu-worker-m5s7t")


async def test_keys_that_only_kubernetes_has_are_not_offered_elsewhere(cockpit: Open) -> None:
    async with cockpit(size=(200, 30)) as seen:
        assert "suspend" not in seen.text.splitlines()[-1]
        await seen.press("U")
        await seen.until(lambda: "Nothing was suspended." in seen.toasts)
        await seen.press("C")
        await seen.until(lambda: "Nothing was cordoned." in seen.toasts)
    async with cockpit(simulation=kube(), size=(200, 30)) as seen:
        assert "U suspend" in seen.text.splitlines()[-1]


async def test_the_route_is_asked_for_again_once_the_dashboard_is_back(cockpit: Open) -> None:
    simulation = kube()
    async with cockpit(simulation=simulation, size=(160, 30)) as seen:
        await seen.sees("service proxy")
        lost = SourceHealth(at_s=START_S + 60, source="ray", ok=False, error="502")
        simulation.session.dispatch(lost)
        await seen.until(lambda: not seen.app.store.sources["ray"].ok)
        simulation.backend.route = replace(simulation.backend.route, via="port-forward")
        back = SourceHealth(at_s=START_S + 60, source="ray", ok=True)
        simulation.session.dispatch(back)
        await seen.sees("port-forward")


async def test_a_second_q_is_a_yes_to_leaving(cockpit: Open) -> None:
    async with cockpit(ends="the cluster demo") as seen:
        await seen.press("q")
        await seen.sees("Quit (y q)")
        await seen.press("q")
        await seen.until(lambda: seen.app.return_value is not None)


ESCAPES = "\x1b]0;owned\x07\x1b[31m\x9b2J\x1b[2J\r\n\u202e[@click=app.quit]"


async def written(seen: Seen) -> AsyncIterator[str]:
    """The output to the terminal in each view."""
    for view in ("1", "2", "3", "4", "5", "9", "0"):
        await seen.press(view)
        strips = seen.app.screen._compositor.render_strips()
        yield "".join(segment.text for strip in strips for segment in strip)


async def test_no_text_of_the_cluster_reaches_the_terminal_as_a_command(cockpit: Open) -> None:
    """Through the real widgets: names, reasons, messages, nodes, jobs, groups and notices."""
    simulation = kube()
    async with cockpit(simulation=simulation, size=(160, 50)) as seen:
        store = seen.app.store
        pods = tuple(
            replace(pod, name=f"{pod.name}{ESCAPES}", reason=ESCAPES, host=ESCAPES, group=ESCAPES)
            for pod in store.pods.values()
        )
        groups = tuple(
            replace(group, name=f"{group.name}{ESCAPES}", note=ESCAPES)
            for group in store.groups.values()
        )
        dispatch = simulation.session.dispatch
        dispatch(PodsListed(at_s=START_S + 60, source="backend", pods=pods))
        dispatch(GroupsListed(at_s=START_S + 60, source="backend", groups=groups))
        dispatch(
            Notice(
                at_s=START_S + 60,
                source="backend",
                kind=ESCAPES,
                name=ESCAPES,
                reason=ESCAPES,
                message=ESCAPES,
            )
        )
        seen.app.tick()
        async for text in written(seen):
            assert not {char for char in text if ord(char) < 32}
            assert not {char for char in text if 0x7F <= ord(char) < 0xA0}
            assert "\u202e" not in text
            assert "A bug in cockpit" not in text
        await seen.press("4", "y")
        await seen.until(lambda: isinstance(seen.app.screen, Reading))
        await seen.press("escape", "K")
        await seen.until(lambda: isinstance(seen.app.screen, Confirm))
        assert "\x1b" not in seen.text
        assert seen.app.return_value is None
