"""Scale requests as patches, on recorded objects."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.backends.kuberay.resources.scale import Plan, forget, plan
from cockpit.model.error import ReplacedError, UsageError
from cockpit.model.scale import ScaleRequest
from tests.backends.kuberay.recorded_objects import Moment

AT = "/spec/workerGroupSpecs/0"


def ask(moment: Moment, replicas: int | None = None, **more: Any) -> Plan:
    request = ScaleRequest("gpu", replicas, **more)
    return plan(moment.cluster, moment.raw, request, moment.workers, 60)


def changes(made: Plan) -> dict[str, Any]:
    return {step["path"]: step["value"] for step in made.patch if step["op"] != "test"}


def guards(made: Plan) -> dict[str, Any]:
    return {step["path"]: step["value"] for step in made.patch if step["op"] == "test"}


def test_a_patch_tests_what_it_was_made_for() -> None:
    made = ask(Moment.of("ready"), 3)
    assert (made.before, made.after, made.warning) == (2, 3, "")
    assert changes(made) == {f"{AT}/replicas": 3}
    assert guards(made) == {
        f"{AT}/groupName": "gpu",
        f"{AT}/replicas": 2,
        f"{AT}/minReplicas": 0,
        f"{AT}/maxReplicas": 5,
    }


def test_scale_to_the_current_size_sends_no_patch() -> None:
    assert ask(Moment.of("ready"), 2).patch == ()


def test_numbers_are_clamped_before_they_are_sent() -> None:
    above = ask(Moment.of("ready"), 9)
    assert (above.after, above.warning) == (5, "9 is above the group's max of 5: limited to 5.")
    assert changes(above) == {f"{AT}/replicas": 5}
    below = ask(Moment.of("ready"), 0, min_replicas=1)
    assert (below.after, below.warning) == (1, "0 is below the group's min of 1: limited to 1.")
    assert changes(below) == {f"{AT}/minReplicas": 1, f"{AT}/replicas": 1}


def test_a_wrong_number_that_the_spec_keeps_is_fixed_by_the_next_patch() -> None:
    made = ask(Moment.of("above-max"), max_replicas=6)
    assert (made.before, made.after) == (5, 6)
    assert "7 is above" in made.warning
    assert changes(made) == {f"{AT}/maxReplicas": 6, f"{AT}/replicas": 6}


def test_numbers_that_make_no_sense_are_refused() -> None:
    moment = Moment.of("ready")
    for wrong in ({"replicas": -1}, {"min_replicas": 4, "max_replicas": 3}, {"max_replicas": -1}):
        with pytest.raises(UsageError, match="gpu"):
            ask(moment, **wrong)
    with pytest.raises(UsageError, match=r"cpu.*\nGroups: gpu"):
        plan(moment.cluster, moment.raw, ScaleRequest("cpu", 1), (), 60)


def test_named_pods_go_and_the_number_falls_with_them() -> None:
    moment = Moment.of("ready")
    made = ask(moment, remove=("demo-gpu-worker-92lr4",))
    assert (made.before, made.after, made.removed) == (2, 1, ("demo-gpu-worker-92lr4",))
    assert changes(made) == {
        f"{AT}/replicas": 1,
        f"{AT}/scaleStrategy": {"workersToDelete": ["demo-gpu-worker-92lr4"]},
    }
    with pytest.raises(UsageError, match="no-such-pod"):
        ask(moment, remove=("no-such-pod",))
    with pytest.raises(UsageError, match="demo-head-fvf65"):
        ask(moment, remove=("demo-head-fvf65",))


def test_a_named_pod_that_min_holds_is_replaced_and_that_is_reported() -> None:
    made = ask(Moment.of("ready"), remove=("demo-gpu-worker-92lr4",), min_replicas=2)
    assert made.after == 2
    assert made.warning == (
        "1 is below the group's min of 2: limited to 2. 1 of them is replaced: 2 stay wanted."
    )


def test_one_host_takes_its_whole_replica_with_it() -> None:
    moment = Moment.of("multi-host")
    made = ask(moment, remove=("demo-gpu-worker-5msl6",))
    assert (made.before, made.after) == (2, 1)
    assert made.removed == ("demo-gpu-worker-5msl6", "demo-gpu-worker-ptl48")
    assert made.warning == "demo-gpu-worker-ptl48 goes too: replica gpu-7kwrl spans 2 hosts."
    # Naming one host is enough, and both count as one replica.
    both = ask(moment, remove=("demo-gpu-worker-5msl6", "demo-gpu-worker-ptl48"))
    assert (both.after, both.warning) == (1, "")


def test_stale_names_leave_with_the_next_patch_and_living_ones_stay() -> None:
    moment = Moment.of("ready")
    moment.group["scaleStrategy"] = {"workersToDelete": ["gone-1", "demo-gpu-worker-9sm5t"]}
    made = ask(moment, remove=("demo-gpu-worker-92lr4",))
    assert changes(made)[f"{AT}/scaleStrategy/workersToDelete"] == [
        "demo-gpu-worker-9sm5t",
        "demo-gpu-worker-92lr4",
    ]
    assert changes(ask(moment, 3))[f"{AT}/scaleStrategy/workersToDelete"] == [
        "demo-gpu-worker-9sm5t"
    ]


def test_names_are_cleaned_up_once_their_pods_no_longer_exist_and_only_ours() -> None:
    moment = Moment.of("multi-host-removed")
    ours = ["demo-gpu-worker-5msl6"]
    moment.group["scaleStrategy"] = {"workersToDelete": [*ours, "another"]}
    patch = forget(moment.cluster, moment.raw, "gpu", ours)
    assert [(step["op"], step["value"]) for step in patch] == [
        ("test", "gpu"),
        ("test", [*ours, "another"]),
        ("replace", ["another"]),
    ]
    assert forget(moment.cluster, moment.raw, "gpu", ["never named"]) == ()


def test_scale_up_with_the_autoscaler_explains_how_to_keep_it() -> None:
    moment = Moment.of("autoscaler-held")
    made = ask(moment, 3)
    assert made.warning == (
        "Ray's autoscaler removes workers that are idle for 60 s; to keep 3, set the group's min "
        "to 3: cockpit scale gpu --min 3."
    )
    assert ask(moment, 3, min_replicas=3).warning == ""


def test_with_the_autoscaler_a_lowered_number_changes_nothing_but_the_number() -> None:
    moment = Moment.of("autoscaler-held")
    moment.group["replicas"] = 2
    made = ask(moment, 0)
    assert made.warning == (
        "Ray's autoscaler keeps busy workers until they are idle. To remove certain pods now: "
        "cockpit scale gpu N --remove POD."
    )
    named = ask(moment, remove=("demo-gpu-worker-mgnls", "demo-gpu-worker-gxqbl"))
    assert (named.after, named.warning) == (0, "")


def test_a_suspended_cluster_reports_that_no_pod_comes() -> None:
    made = ask(Moment.of("suspended"), 2)
    assert made.warning == "The cluster is suspended: there are no pods until it is unsuspended."


def test_a_pod_that_replaced_the_one_to_remove_is_left_alone() -> None:
    moment = Moment.of("ready")
    pod = moment.workers[0]
    assert ask(moment, remove=(pod.name,), remove_uids=(pod.uid,)).removed == (pod.name,)
    with pytest.raises(ReplacedError, match=f"Pod {pod.name} was replaced"):
        ask(moment, remove=(pod.name,), remove_uids=("of-the-one-before",))
