"""The instances of a cluster: launched, replaced and terminated, also after a crash."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cockpit.backends.lambda_cloud import instances, state
from cockpit.backends.lambda_cloud.api import Api, Instance, settings
from cockpit.backends.lambda_cloud.description import Cloud, parse
from cockpit.backends.lambda_cloud.instances import Removed
from cockpit.backends.lambda_cloud.plan import plan
from cockpit.backends.lambda_cloud.state import locked
from cockpit.config import paths
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from tests.backends.lambda_cloud.conftest import TEXT, described_in
from tests.lambda_cloud import LambdaCloud, Refused

RULES = TEXT.replace('ssh_key = "id"', 'ssh_key = "id"\nallow_ssh_from = "203.0.113.7/32"')
CHANGES = ("ssh-keys", "firewall-rulesets", *["instance-operations/launch"] * 3)
"""What `make` sends for RULES, in order."""
INTERNAL = Refused(500, "global/internal-error", "An internal server error occurred.")


def make(cloud: Cloud, timeout_s: float = 10.0) -> tuple[dict[str, Instance], list[str]]:
    said: list[str] = []

    async def made() -> dict[str, Instance]:
        api = Api(settings(""))
        try:
            with locked(cloud.cluster) as store:
                planned = await plan(api, cloud, store.state, time.time())
                return await instances.make(api, cloud, planned, store, timeout_s, said.append)
        finally:
            await api.aclose()

    return asyncio.run(made()), said


def end(cloud: Cloud) -> Removed:
    async def ended() -> Removed:
        api = Api(settings(""))
        try:
            with locked(cloud.cluster) as store:
                assert store.state is not None
                removed = await instances.end(api, store, store.state, 10.0, print)
                store.remove()
                return removed
        finally:
            await api.aclose()

    return asyncio.run(ended())


def assert_nothing_left(account: LambdaCloud) -> None:
    assert (account.alive, account.keys, account.rulesets) == ([], [], [])


def test_instances_are_made_with_key_tags_and_rules_and_removed(
    lambda_cloud: LambdaCloud, tmp_path: Path, key: Path
) -> None:
    cloud = described_in(tmp_path, key, RULES)
    found, said = make(cloud)
    assert list(found) == ["head", "gpu-1", "gpu-2"]
    assert len(lambda_cloud.alive) == 3
    one = lambda_cloud.alive[1]
    assert one["name"] == one["hostname"] == one["tags"][1]["value"]
    assert one["tags"][0] == {"key": "cockpit-cluster", "value": "lab"}
    assert one["ssh_key_names"] == [lambda_cloud.keys[0]["name"]]
    (rule,) = lambda_cloud.rulesets[0]["rules"]
    assert (rule["source_network"], rule["port_range"]) == ("203.0.113.7/32", [22, 22])
    assert "Launched gpu-1: gpu_1x_a10, $0.75 an hour." in said
    again, said = make(cloud)
    assert ([one.id for one in again.values()], said) == ([one.id for one in found.values()], [])
    recorded = (state.folder("lab") / "state.json").read_text()
    assert "PRIVATE KEY" not in recorded
    assert (state.folder("lab") / "state.json").stat().st_mode & 0o777 == 0o600
    removed = end(cloud)
    assert removed.instances == 3
    assert [what.split(" cockpit-")[0] for what in removed.others] == [
        "firewall ruleset",
        "SSH key",
    ]
    assert_nothing_left(lambda_cloud)
    assert state.load("lab") is None


def test_key_and_instances_of_others_stay(lambda_cloud: LambdaCloud, described: Cloud) -> None:
    public = Path(f"{described.ssh_key}.pub").read_text().split()
    theirs = {"id": "1", "name": "mine", "public_key": " ".join([*public[:2], "another-comment"])}
    lambda_cloud.keys.append(theirs)
    make(described)
    assert lambda_cloud.keys == [theirs]
    stranger = {**lambda_cloud.alive[0], "id": "ff", "name": "stranger", "tags": []}
    stranger["tags"] = [{"key": "cockpit-cluster", "value": "lab"}]  # of another host's cockpit
    lambda_cloud.instances["ff"] = stranger
    assert end(described).others == ()
    assert lambda_cloud.alive == [stranger]
    assert lambda_cloud.keys == [theirs]


def _child(cloud: Cloud) -> None:
    make(cloud)
    os._exit(0)


@pytest.fixture
def killed(
    lambda_cloud: LambdaCloud, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Cloud, int, str], None]]:
    """Run `make` in a process that is killed before or after its n-th change in the account."""

    def run(cloud: Cloud, number: int, when: str) -> None:
        process = multiprocessing.get_context("fork").Process(target=_child, args=(cloud,))
        seen: list[str] = []

        def kill(request: str) -> None:
            seen.append(request)
            if len(seen) == number + 1:
                assert request == f"POST {CHANGES[number]}"
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
                if when == "before":
                    raise INTERNAL  # the request did not arrive

        setattr(lambda_cloud, when, kill)
        process.start()
        process.join(20)
        assert process.exitcode == -signal.SIGKILL
        setattr(lambda_cloud, when, lambda request: None)

    with TemporaryDirectory(dir="/tmp") as directory:  # the process leaves its private folder
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield run


@pytest.fixture(params=[(at, when) for at in range(len(CHANGES)) for when in ("before", "after")])
def unfinished(
    request: pytest.FixtureRequest,
    lambda_cloud: LambdaCloud,
    tmp_path: Path,
    key: Path,
    killed: Callable[[Cloud, int, str], None],
) -> Cloud:
    """A cluster whose `make` was killed at each change; the account's list lags."""
    cloud = described_in(tmp_path, key, RULES)
    lambda_cloud.lag = 1
    killed(cloud, *request.param)
    return cloud


@pytest.mark.slow
def test_up_goes_on_after_a_kill_at_any_change(
    lambda_cloud: LambdaCloud, unfinished: Cloud
) -> None:
    found, _ = make(unfinished)
    assert len(found) == len(lambda_cloud.alive) == 3
    assert (len(lambda_cloud.keys), len(lambda_cloud.rulesets)) == (1, 1)
    end(unfinished)
    assert_nothing_left(lambda_cloud)


@pytest.mark.slow
def test_down_cleans_up_after_a_kill_at_any_change(
    lambda_cloud: LambdaCloud, unfinished: Cloud
) -> None:
    end(unfinished)
    assert_nothing_left(lambda_cloud)


def test_down_right_after_a_launch_ends_what_the_list_does_not_have_yet(
    lambda_cloud: LambdaCloud, described: Cloud
) -> None:
    lambda_cloud.lag = 2
    with pytest.raises(CockpitError, match="not ready after 0 s"):
        make(described, timeout_s=0.0)
    assert len(lambda_cloud.alive) == 3
    end(described)
    assert_nothing_left(lambda_cloud)


def test_down_that_failed_is_repeated(lambda_cloud: LambdaCloud, tmp_path: Path, key: Path) -> None:
    cloud = described_in(tmp_path, key, RULES)
    make(cloud)
    for request in ("POST instance-operations/term", "DELETE firewall", "DELETE ssh-keys"):
        lambda_cloud.faults.append((request, with_status(500)))
        with pytest.raises(UnreachableError):
            end(cloud)
        assert state.load("lab") is not None
    end(cloud)
    assert_nothing_left(lambda_cloud)


def with_status(status: int, code: str = "global/internal-error") -> Refused:
    return Refused(status, code, "It failed.")


def test_launch_with_an_unknown_result_is_not_repeated_if_it_succeeded(
    lambda_cloud: LambdaCloud, described: Cloud
) -> None:
    answers = iter([True])

    def fail(request: str) -> None:
        if request.endswith("launch") and next(answers, False):
            raise with_status(500)

    lambda_cloud.after, lambda_cloud.lag = fail, 2
    _, said = make(described)
    assert len(lambda_cloud.instances) == 3
    assert any("looking whether head was launched" in line for line in said)


def test_no_capacity_names_the_regions_and_what_runs(
    lambda_cloud: LambdaCloud, described: Cloud
) -> None:
    lambda_cloud.capacity["gpu_1x_a10"] = ["us-west-1"]
    with pytest.raises(CockpitError, match="no capacity for this cluster in us-east-1") as raised:
        make(described)
    assert "gpu_1x_a10: us-west-1" in raised.value.why
    assert lambda_cloud.instances == {}
    # As a launch reports it, after the plan was made:
    full = with_status(400, "instance-operations/launch/insufficient-capacity")
    lambda_cloud.capacity["gpu_1x_a10"] = ["us-east-1", "us-west-1"]
    lambda_cloud.after = lambda request: (
        lambda_cloud.faults.append(("POST instance-operations/launch", full))
        if request.endswith("launch")
        else None
    )
    with pytest.raises(CockpitError, match="no capacity") as raised:
        make(described)
    assert "gpu_1x_a10: us-west-1" in raised.value.why
    assert "1 instance of the cluster cost $0.24 an hour" in raised.value.why
    lambda_cloud.after = lambda request: None
    make(described)
    assert len(lambda_cloud.alive) == 3


def test_another_region_with_capacity_is_used(
    lambda_cloud: LambdaCloud, tmp_path: Path, key: Path
) -> None:
    lambda_cloud.capacity["gpu_1x_a10"] = ["us-west-1"]
    text = TEXT.replace('region = "us-east-1"', 'region = ["us-east-1", "us-west-1"]')
    make(described_in(tmp_path, key, text))
    assert {one["region"]["name"] for one in lambda_cloud.alive} == {"us-west-1"}


def test_quota_is_reported_with_what_runs(lambda_cloud: LambdaCloud, described: Cloud) -> None:
    lambda_cloud.faults.append(
        ("POST instance-operations/launch", with_status(400, "global/quota-exceeded"))
    )
    with pytest.raises(CockpitError, match="quota does not allow head") as raised:
        make(described)
    assert "no instance runs" in raised.value.why


def test_instances_that_boot_slowly_are_waited_for(
    lambda_cloud: LambdaCloud, described: Cloud
) -> None:
    lambda_cloud.boots_after = 5
    _, said = make(described)
    assert "Waiting: head is booting, gpu-1 is booting, gpu-2 is booting." in said
    lambda_cloud.boots_after = 10**9
    end(described)
    with pytest.raises(CockpitError, match=r"not ready after 0 s") as raised:
        make(described, timeout_s=0.0)
    assert "3 instances of the cluster cost $1.74 an hour" in raised.value.why


def test_instance_without_an_address_is_waited_for(
    lambda_cloud: LambdaCloud, described: Cloud
) -> None:
    lambda_cloud.half_made = 3
    found, said = make(described)
    assert all(one.ip for one in found.values())
    assert "Waiting: head is active, gpu-1 is active, gpu-2 is active." in said


@pytest.mark.parametrize("status", ["vanished", "unhealthy", "preempted", "terminated"])
def test_instance_that_ends_while_it_starts_is_replaced(
    lambda_cloud: LambdaCloud, described: Cloud, status: str
) -> None:
    lambda_cloud.boots_after = 5

    def lose(request: str) -> None:
        if request.endswith("launch") and len(lambda_cloud.instances) == 3:
            list(lambda_cloud.instances.values())[1]["status"] = status

    lambda_cloud.after = lose
    found, said = make(described)
    assert len(found) == len(lambda_cloud.alive) == 3
    assert any(line.startswith("The instance of gpu-1 is ") for line in said)
    record = state.load("lab")
    assert record is not None
    assert [node.host for node in record.nodes if node.ended_s is not None] == ["gpu-1"]
    end(described)
    assert lambda_cloud.alive == []


def test_instances_that_keep_ending_are_given_up(
    lambda_cloud: LambdaCloud, described: Cloud
) -> None:
    def lose(request: str) -> None:
        for one in lambda_cloud.alive:
            one["status"] = "unhealthy" if one["status"] == "booting" else one["status"]

    lambda_cloud.after = lose
    with pytest.raises(CockpitError, match="3 instances ended while they were started"):
        make(described)
    lambda_cloud.after = lambda request: None
    end(described)
    assert lambda_cloud.alive == []


def test_file_system_is_mounted_where_it_is(
    lambda_cloud: LambdaCloud, tmp_path: Path, key: Path
) -> None:
    cloud = described_in(
        tmp_path, key, TEXT.replace('ssh_key = "id"', 'ssh_key = "id"\nfile_system = "runs"')
    )
    with pytest.raises(UsageError, match="no file system runs in us-east-1"):
        make(cloud)
    region = {"name": "us-east-1", "description": ""}
    lambda_cloud.file_systems.append(
        {"id": "1", "name": "runs", "mount_point": "/lambda/nfs/runs", "region": region}
    )
    make(cloud)
    assert {tuple(one["file_system_names"]) for one in lambda_cloud.alive} == {("runs",)}


@pytest.mark.parametrize(
    ("limit", "what"),
    [
        ("[spending]\nmax_per_hour = 1.7", r"costs \$1.74 an hour"),
        ("[spending]\nmax_total = 0", r"has cost \$0.00"),
        ('[[instances]]\ntype = "gpu_8x_h100_sxm5"\nmax_per_hour = 20', r"costs \$23.92 an hour"),
        ('[[instances]]\ntype = "gpu_9x"', "has no instance type gpu_9x"),
    ],
)
def test_limits_are_checked_before_anything_is_made(
    lambda_cloud: LambdaCloud, tmp_path: Path, key: Path, limit: str, what: str
) -> None:
    with pytest.raises((NotAllowedError, UsageError), match=what):
        make(described_in(tmp_path, key, TEXT + limit))
    assert not [request for request in lambda_cloud.asked if not request.startswith("GET")]


def test_second_process_is_refused_while_the_first_has_the_lock(
    lambda_cloud: LambdaCloud, described: Cloud
) -> None:
    with locked("lab"), pytest.raises(CockpitError, match="Another process changes cluster lab"):
        make(described)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"version": 2}', "of another version of cockpit"),
        ("{", "cannot be read"),
        ('{"version": 1, "nodes": 3}', "cannot be read"),
    ],
)
def test_record_that_is_not_understood_is_kept(text: str, what: str) -> None:
    paths.make_private(state.folder("lab"))
    (state.folder("lab") / "state.json").write_text(text)
    with pytest.raises(CockpitError, match=what):
        state.load("lab")
    assert (state.folder("lab") / "state.json").read_text() == text


def test_description_without_a_recorded_instance_is_refused(
    lambda_cloud: LambdaCloud, described: Cloud
) -> None:
    make(described)
    fewer = parse(TEXT.replace("count = 2", "count = 1"), Path(described.path))
    with pytest.raises(UsageError, match="no longer describes"):
        make(fewer)
