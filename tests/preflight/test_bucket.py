"""An S3 storage path, tried from the pods: the commands of each pod run here, on a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyarrow.fs import FileSelector  # type: ignore[import-untyped]

from cockpit.backends.protocol import ExecResult
from cockpit.launch.environment import JobEnvironment
from cockpit.launch.submission import bundled_spec
from cockpit.preflight import bucket
from cockpit.preflight.checks import storage
from cockpit.preflight.demand import Demand, demand
from cockpit.preflight.finding import Finding, State
from cockpit.preflight.preflight import check
from tests.preflight.pods import PodsHere, pod, target
from tests.simulated_backend import ScriptedBackend
from tests.training.object_store import Kind, ObjectStore
from training.checkpoint.filesystem import located

JOB = Demand(workers=2, modules=("ray",), storage="s3://bucket/runs/new")
NONE = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}


@pytest.fixture
def pods(tmp_path: Path) -> PodsHere:
    return PodsHere(homes=tmp_path)


async def found(pods: PodsHere, wanted: Demand = JOB, *, read_only: bool = False) -> Finding:
    rows = await check(pods, target(), wanted, timeout_s=60.0, read_only=read_only)
    [one] = [row for row in rows if row.name == "storage"]
    return one


async def test_bucket_is_written_by_one_pod_read_by_another_and_left_empty(
    s3: ObjectStore, pods: PodsHere
) -> None:
    with_options = replace(JOB, storage=f"{JOB.storage}?region=us-east-1")
    one = await found(pods, with_options)
    assert (one.state, one.found) == (State.OK, "s3://bucket/runs/new is shared by 3 pods"), one
    puts = {request.path for request in s3.requests if request.method == "PUT"}
    assert len([path for path in puts if ".cockpit-preflight-" in path]) == 3
    filesystem, path = located(JOB.storage)
    # pyarrow leaves an empty object for the folder, as it does when a job deletes a checkpoint.
    assert filesystem.get_file_info(FileSelector(path)) == []
    secrets = "secret-of-the-test"
    assert not any(secrets in text for call in pods.asked for text in map(str, call))


async def test_missing_bucket_and_missing_keys_are_sentences_with_the_fix(
    s3: ObjectStore, pods: PodsHere
) -> None:
    one = await found(pods, replace(JOB, storage="s3://nowhere/runs"))
    assert one.state is State.FAILED
    assert (
        one.found == "head, one and two cannot use s3://nowhere/runs: there is no bucket nowhere."
    )
    assert one.fix == "Create it, or correct the name."
    pods.environment = dict.fromkeys(("head", "one", "two"), NONE)
    s3.fail(Kind.DENIED, times=99)
    one = await found(pods)
    assert one.state is State.FAILED
    assert one.found.endswith(": access denied, and the pod has no credentials.")
    assert one.fix.startswith("Create a Secret with AWS_ACCESS_KEY_ID")
    assert one.pods == ("head", "one", "two")


async def test_clock_that_the_server_refuses_is_named(s3: ObjectStore, pods: PodsHere) -> None:
    s3.fail(Kind.SKEWED, times=99)
    one = await found(pods)
    assert one.state is State.FAILED
    assert "the clock of this host differs from that of the server" in one.found
    assert one.fix == "Synchronize the clocks of the nodes (NTP, chrony)."


async def test_pod_with_another_server_is_found(
    s3: ObjectStore, pods: PodsHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "WAIT_S", 1.0)  # for the object of the pod that cannot write
    nowhere: Mapping[str, str] = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    pods.environment = {"two": nowhere}
    one = await found(pods)
    assert (one.state, one.pods) == (State.FAILED, ("two",))
    assert "127.0.0.1:9 does not respond" in one.found or "http://127.0.0.1:9" in one.found


async def test_read_only_mode_and_keys_of_the_job_write_nothing(
    s3: ObjectStore, pods: PodsHere
) -> None:
    one = await found(pods, read_only=True)
    assert (one.state, "read-only" in one.found) == (State.SKIPPED, True)
    one = await found(pods, replace(JOB, has_s3_keys=True))
    assert (one.state, "are not sent" in one.found) == (State.SKIPPED, True)
    assert s3.requests == []


@dataclass(slots=True)
class Buckets(ScriptedBackend):
    """The pods `apart` use a bucket of their own with the same name."""

    apart: tuple[str, ...] = ()
    objects: set[tuple[bool, str]] = field(default_factory=set)

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        request, is_apart = json.loads(argv[-1]), pod in self.apart
        self.objects.add((is_apart, request["own"]))
        await asyncio.sleep(0)  # the others write theirs
        was_read = (is_apart, request["other"]) in self.objects
        await asyncio.sleep(0)
        self.objects.discard((is_apart, request["own"]))
        return ExecResult(0, json.dumps({"was_read": was_read}), "")


@pytest.mark.parametrize("count", [bucket.AT_ONCE + 1, 3 * bucket.AT_ONCE])
async def test_bucket_is_shared_by_the_pods_of_all_groups(count: int) -> None:
    pods = [pod(f"pod-{number}", number) for number in range(count)]

    async def tried(*apart: str) -> Finding:
        backend = Buckets(apart=apart)
        return finding(**await bucket.exchange(backend, pods, JOB.storage, {}, timeout_s=60.0))

    one = await tried()
    assert one.found == f"s3://bucket/runs/new is shared by {count} pods"
    last = [one.name for one in pods[bucket.AT_ONCE :]]
    one = await tried(*last)
    assert one.state is State.FAILED
    assert "is not shared" in one.found


def finding(**answers: bucket.Answer) -> Finding:
    [one] = storage.bucket(answers, JOB)
    return one


def test_pods_that_did_not_read_and_those_that_are_late_are_told_apart() -> None:
    read, unread = bucket.Answer(was_read=True), bucket.Answer()
    one = finding(head=read, one=unread)
    assert (one.state, one.pods) == (State.FAILED, ("one",))
    assert "did not see what another pod wrote" in one.found
    one = finding(head=unread, one=bucket.Answer(late="no answer within 3 s"))
    assert one.state is State.SKIPPED
    assert one.found == "s3://bucket/runs/new was not tried in one: no answer within 3 s."
    assert finding(head=read).found == "s3://bucket/runs/new is writable"


def test_variables_of_the_job_select_the_server_and_keys_stay_here() -> None:
    given = {"AWS_REGION": "eu", "AWS_ENDPOINT_URL": "http://a:1", "AWS_PROFILE": "x"}
    wanted = demand(bundled_spec("ddp", environment=JobEnvironment(env_vars=given)))
    assert wanted.s3_variables == (("AWS_REGION", "eu"), ("AWS_ENDPOINT_URL", "http://a:1"))
    assert not wanted.has_s3_keys
    keys = {"AWS_SECRET_ACCESS_KEY": "x"}
    assert demand(bundled_spec("ddp", environment=JobEnvironment(env_vars=keys))).has_s3_keys


def test_modules_of_the_probe_need_each_other_in_this_order() -> None:
    assert list(bucket.library()) == ["training.stop", "training.checkpoint.filesystem"]
