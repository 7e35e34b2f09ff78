"""Valid and invalid specs of a local cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace

from cockpit.backends.local.files import RunFiles
from cockpit.backends.local.pods.ray_start import pod_environment
from cockpit.backends.local.spec import (
    ClusterSpec,
    GroupSpec,
    check_groups,
    check_name,
    scaled_spec,
)
from cockpit.model.cluster import Resources
from cockpit.model.error import UsageError
from cockpit.model.recovery import FAST
from cockpit.model.scale import ScaleRequest

GPU = GroupSpec("gpu", replicas=2, min=1, max=4, resources=Resources(cpus=2, memory_bytes=1 << 30))
SPEC = ClusterSpec(
    name="demo",
    uid="0123abcd",
    network="127.77.1",
    gcs_port=20001,
    dashboard_port=20002,
    client_port=20003,
    created_s=1.5,
    python="/usr/bin/python3",
    groups=(GPU, GroupSpec("cpu", replicas=0)),
)


@pytest.mark.parametrize(("replicas", "desired"), [(0, 1), (1, 1), (3, 3), (4, 4), (7, 4)])
def test_desired_is_clamped_to_min_and_max(replicas: int, desired: int) -> None:
    assert replace(GPU, replicas=replicas).desired == desired


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "a b", "Upper", "-a", "a-", "a\n", "ä", "a" * 41, "~"]
)
def test_a_name_that_is_no_file_name_or_label_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "demo", "a-1", "0", "a" * 40])
def test_a_plain_name_is_taken(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([GroupSpec("a", 1), GroupSpec("a", 1)], "twice"),
        ([GroupSpec("headgroup", 1)], "head's own"),
        ([GroupSpec("a", -1)], "cannot be -"),
        ([GroupSpec("a", 1, min=3, max=2)], "above its max"),
        ([GroupSpec("a", 500, max=500)], "too many"),
        ([GroupSpec("a/b", 1)], "cannot be the name"),
    ],
)
def test_groups_that_make_no_sense_are_refused(groups: list[GroupSpec], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_groups(groups)


def test_a_spec_survives_its_file() -> None:
    assert convert(to_builtins(SPEC), ClusterSpec) == SPEC


def test_scaling_beyond_max_is_held_and_the_clamped_number_is_what_stays() -> None:
    scaled, warning = scaled_spec(SPEC, ScaleRequest("gpu", replicas=9))
    assert scaled.group("gpu").replicas == 4
    assert warning == "9 is above the group's max of 4: limited to 4."
    raised, warning = scaled_spec(scaled, ScaleRequest("gpu", max_replicas=8))
    assert (raised.group("gpu").desired, warning) == (4, "")


def test_scaling_below_min_is_held() -> None:
    scaled, warning = scaled_spec(SPEC, ScaleRequest("gpu", replicas=0))
    assert scaled.group("gpu").desired == 1
    assert "below the group's min" in warning


def test_a_higher_min_raises_the_number_and_leaves_other_groups_alone() -> None:
    scaled, _ = scaled_spec(SPEC, ScaleRequest("gpu", min_replicas=3))
    assert scaled.group("gpu").desired == 3
    assert scaled.group("cpu") == SPEC.group("cpu")


def test_an_unknown_group_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError, match=r"Groups: gpu, cpu\."):
        scaled_spec(SPEC, ScaleRequest("tpu", replicas=1))


def test_the_recovery_profile_is_kept_and_is_the_default_of_an_older_cluster() -> None:
    fast = replace(SPEC, recovery="fast")
    assert convert(to_builtins(fast), ClusterSpec) == fast
    older = to_builtins(fast)
    del older["recovery"]
    assert convert(older, ClusterSpec).recovery == "default"


def test_temporary_files_are_in_the_directory_of_the_pod_unless_the_user_chose_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def directory() -> str:
        return pod_environment(SPEC, Path("/token"), "demo-head", ())["TMPDIR"]

    monkeypatch.delenv("TMPDIR", raising=False)
    assert directory() == str(RunFiles.of(SPEC.uid).pod("demo-head"))
    monkeypatch.setenv("TMPDIR", "/scratch")
    assert directory() == "/scratch"


def test_pods_have_the_settings_of_their_profile() -> None:
    def environment(profile: str) -> dict[str, str]:
        return pod_environment(replace(SPEC, recovery=profile), Path("/token"), "demo-head", ())

    assert FAST.pod_env.items() <= environment("fast").items()
    assert not FAST.pod_env.keys() & environment("default").keys()
    assert environment("default")["RAY_ADDRESS"] == SPEC.gcs_address, "or Ray finds another one's"
