"""The probe, run here as in pods, and what it finds for real."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.backends.protocol import ExecResult
from cockpit.preflight import facts
from cockpit.preflight.demand import Demand
from cockpit.preflight.facts import Answer
from cockpit.preflight.finding import State
from cockpit.preflight.preflight import check
from cockpit.preflight.survey import script, survey
from tests.drills.script import eventually
from tests.fuzz.cases import assert_clean, broken, examine, quick_and_nightly
from tests.preflight.pods import HEAD, ONE, TWO, PodsHere, target
from tests.simulated_backend import ScriptedBackend

PODS = (HEAD, ONE, TWO)


def probe(verb: str, **request: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, *script(verb, **request)[1:]]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)


def asked(storage: str = "", marker: str = "", modules: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "modules": modules,
        "storage": storage,
        "marker": marker,
        "keep_s": 30,
        "names": [],
        "within_s": 0,
    }


def test_probe_reports_versions_memory_and_room_without_importing_torch() -> None:
    began_s = time.time()
    found = facts.facts(probe("facts", **asked(modules=("json", "nothing_of_this_name"))).stdout)
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.versions["torch"].split(".")[0] == "2"
    assert found.missing == ("nothing_of_this_name",)
    assert 0 < found.memory.used_bytes < found.memory.size_bytes
    assert found.shm is not None
    assert found.disk is not None
    assert 0 < found.disk.free_bytes < found.disk.size_bytes
    assert found.storage is None
    assert began_s <= found.began_s <= found.now_s <= time.time()


def test_marker_is_written_where_the_folder_will_be_and_removed(tmp_path: Path) -> None:
    later = str(tmp_path / "not" / "yet")
    found = facts.facts(probe("facts", **asked(later, ".marker")).stdout)
    assert found.storage is not None
    assert (found.storage.folder, found.storage.error) == (str(tmp_path), "")
    assert (tmp_path / ".marker").read_text() == ".marker"
    seen = probe("seen", storage=later, names=[".marker", ".other"], within_s=0)
    assert facts.names(seen.stdout) == (".marker",)
    assert probe("remove", storage=later, names=[".marker"]).returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert probe("remove", storage=later, names=[".marker"]).returncode == 0, "it was removed"


def test_marker_is_removed_by_the_pod_if_it_is_not_asked_to(tmp_path: Path) -> None:
    found = facts.facts(probe("facts", **asked(str(tmp_path), ".marker") | {"keep_s": 0.5}).stdout)
    assert found.storage is not None
    assert found.storage.error == "", "it was written"
    eventually(lambda: not list(tmp_path.iterdir()))


def test_storage_that_cannot_be_written_is_an_error_of_the_facts() -> None:
    found = facts.facts(probe("facts", **asked("/proc/1", ".marker")).stdout)
    assert found.storage is not None
    assert found.storage.error
    assert found.storage.kind == "proc"


@pytest.mark.parametrize(("chosen", "count"), [("0,3", 2), ("", 0), ("-1", 0)])
def test_gpus_are_those_that_a_process_may_use(chosen: str, count: int) -> None:
    argv = [sys.executable, *script("facts", **asked())[1:]]
    environment = {"CUDA_VISIBLE_DEVICES": chosen}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    assert facts.facts(done.stdout).gpus == count


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("", "printed no result"),
        ("Segmentation fault", "printed no result"),
        ('{"python": 3}', "is not understood"),
        ("{" * 200_000, "is not understood"),
    ],
)
def test_output_that_is_no_result_is_refused_in_one_line(output: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        facts.facts(output)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300


@quick_and_nightly(500)
def test_result_of_a_pod_is_an_error_or_clean(cases: int) -> None:
    document = json.loads(probe("facts", **asked("/tmp", modules=("x",))).stdout)

    def examined(raw: Any) -> None:
        with suppress(ValueError):
            found = facts.facts(json.dumps(raw))
            assert_clean(found)

    examine(broken(document), examined, cases)


JOB = Demand(workers=2, modules=("ray",), storage="~/results")


def left(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def surveyed(
    backend: ScriptedBackend, demand: Demand = JOB, *, timeout_s: float = 20.0, **how: Any
) -> Mapping[str, Answer]:
    how = {"may_write": True} | how
    return await survey(backend, PODS, demand, timeout_s=timeout_s, **how)


async def test_pods_that_share_a_folder_see_what_each_wrote(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    backend = PodsHere(homes=tmp_path)
    found = await surveyed(backend, replace(JOB, storage=str(shared)))
    assert [answer.unseen for answer in found.values()] == [(), (), ()]
    assert all(answer.facts is not None for answer in found.values())
    assert [call[2] for call in backend.asked].count("remove") == 1
    assert left(shared) == [], "the markers are removed"


async def test_home_directories_that_are_not_shared_are_found(tmp_path: Path) -> None:
    backend = PodsHere(homes=tmp_path)
    found = await check(backend, target(), JOB, timeout_s=20.0)
    [storage] = [one for one in found if one.name == "storage"]
    assert storage.state is State.FAILED
    assert "~/results is not shared: head does not see what one and two wrote" in storage.found
    assert storage.pods == ("head", "one", "two")
    assert left(tmp_path) == []


async def test_read_only_mode_writes_nothing_and_reports_it(tmp_path: Path) -> None:
    backend = PodsHere(homes=tmp_path)
    found = await check(backend, target(), JOB, timeout_s=20.0, read_only=True)
    [storage] = [one for one in found if one.name == "storage"]
    assert storage.state is State.SKIPPED
    assert "read-only mode" in storage.found
    assert {call[2] for call in backend.asked} == {"facts"}
    assert [one.state for one in found if one.name == "python"] == [State.OK]


@pytest.mark.timed
async def test_pod_that_does_not_answer_delays_nothing_beyond_the_limit(tmp_path: Path) -> None:
    backend = PodsHere(homes=tmp_path, slow=lambda pod: pod == "two")
    shared = tmp_path / "shared"
    shared.mkdir()
    began_s = time.monotonic()
    demand = replace(JOB, storage=str(shared))
    found = await check(backend, target(), demand, timeout_s=8.0)
    assert time.monotonic() - began_s < 10
    [mute] = [one for one in found if one.name == "pod probe"]
    assert (mute.state, mute.pods) == (State.WARNING, ("two",))
    assert "no answer within" in mute.found
    assert next(one for one in found if one.name == "python").state is State.OK
    eventually(lambda: not left(shared))


async def test_without_the_right_to_exec_no_command_is_run(tmp_path: Path) -> None:
    backend = PodsHere(homes=tmp_path, denied={"exec": "pods/exec is forbidden for jane"})
    found = await check(backend, target(), JOB, timeout_s=5.0)
    [skipped] = [one for one in found if one.name == "pod probe"]
    assert skipped.state is State.SKIPPED
    assert "Pods/exec is forbidden for jane." in skipped.found
    assert not any(call[0] == "exec" for call in backend.asked)
    assert next(one for one in found if one.name == "room").state is State.OK


class Hostile(ScriptedBackend):
    async def exec(self, pod: str, argv: Any, *, uid: str = "") -> ExecResult:
        await asyncio.sleep(0)
        return ExecResult(1, "", "\x1b]0;owned\x07\x1b[2Jboom")


async def test_text_of_a_pod_is_cleaned() -> None:
    found = await check(Hostile(), target(), JOB, timeout_s=5.0)
    assert_clean(found)
    assert any("boom" in one.found for one in found)
