"""The parts of the soak, each alone, so that a defect in them does not cost an hour."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cockpit.cli import main as cli
from tests.drills.script import eventually
from tests.soak.clock import SteppedClock
from tests.soak.disk import SIZE_BYTES, SmallDisk
from tests.soak.soak import REMAINS, described, is_defect, stages_of
from tests.soak.usage import Objects, Sampler, Usage, memory_growth


def test_the_clock_of_a_process_is_stepped_while_it_runs(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    tells = "import time\nwhile input(): print(time.time(), time.monotonic(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", tells],
        env={**os.environ, **clock.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = []
        for offset_s in (0.0, 3_600.0, 0.0):
            clock.step(offset_s)
            process.stdin.write("x\n")
            process.stdin.flush()
            told.append([float(word) for word in process.stdout.readline().split()])
        process.stdin.write("\n")
    (wall, monotonic), (ahead, later), (back, _) = told
    assert 3_500 < ahead - wall < 3_700
    assert abs(back - wall) < 100
    assert later - monotonic < 100


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_small_disk_is_full_for_those_inside_and_leaves_no_mount(tmp_path: Path) -> None:
    before = Path("/proc/self/mounts").read_text()
    with SmallDisk(tmp_path / "state") as disk:
        assert 0 < disk.fill() <= SIZE_BYTES
        write = ["sh", "-c", f"echo x > {disk.path}/more"]
        assert subprocess.run(disk.enter(*write), capture_output=True, check=False).returncode
        disk.free()
        assert not subprocess.run(disk.enter(*write), check=False).returncode
        assert not list((tmp_path / "state").iterdir())
    assert Path("/proc/self/mounts").read_text() == before


def test_what_grew_in_a_process_is_named(tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    # A signal just before a read that blocks would be handled only after it: hence the time limit.
    # Garbage, such as that of an import, would be a difference if only one of the lists counts it.
    code = (
        "import collections, gc, json, select\n"
        "def line():\n"
        "    while not select.select([0], [], [], 0.1)[0]: pass\n"
        "    return input()\n"
        "held = []\n"
        "while line():\n"
        "    held += [[] for _ in range(9_000)] + [f'text {n}' for n in range(8_000)]\n"
        "    import wave; gc.collect(); print(flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **SteppedClock(tmp_path).environment, "SOAK_OBJECTS": str(path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        listed = []
        for _ in range(2):
            process.stdin.write("x\n")
            process.stdin.flush()
            process.stdout.readline()
            listed.append(Objects.of(process.pid, path))
        process.stdin.write("\n")
    assert listed[1].kinds["builtins.list"][0] - listed[0].kinds["builtins.list"][0] >= 9_000
    grown = listed[1].grown_since(replace(listed[0], modules=listed[0].modules - {"wave"}))
    assert "builtins.list +9,0" in grown
    assert "builtins.str in builtins.list +8,0" in grown
    assert grown.endswith("; 1 modules imported since: wave")


def test_growth_is_counted_from_when_memory_has_settled() -> None:
    samples = [
        Usage(at_s, 50_000_000, 20_000_000 if at_s < 100 else 45_000_000, 10, 5, 0)
        for at_s in range(0, 1_000, 5)
    ]
    assert memory_growth(samples, 0.0) == pytest.approx(0.5)
    assert memory_growth(samples, 200.0) == 0.0


def test_a_process_that_ends_is_noticed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    sampler = Sampler(process.pid)
    eventually(lambda: bool(sampler.samples))
    process.communicate(b"\n")
    eventually(lambda: sampler.ended)
    sampler.stop()


def test_a_time_without_a_run_is_described_by_run_jobs_and_sources() -> None:
    status = {
        "cluster": {"health": "ready", "message": ""},
        "run": {"state": "RUNNING", "step": None},
        "jobs": [{"name": "one", "status": "FAILED"}],
        "sources": [
            {"name": "ray", "ok": True},
            {"name": "mlflow", "ok": False, "absent": True, "error": ""},
            {"name": "telemetry", "ok": False, "absent": False, "error": "HTTP 503"},
        ],
    }
    assert described(status) == (
        "cluster ready, run RUNNING at step None, jobs one FAILED, "
        "sources ray ok, mlflow absent, telemetry HTTP 503"
    )
    assert described({}) == "cluster ?, run none at step None, jobs none, sources none"


def test_stages_of_a_drill_are_listed_with_their_times() -> None:
    stages = [
        {"stage": "injecting", "at_s": 10.0},
        {"stage": "undoing", "at_s": 13.0},
        {"stage": "recovering", "at_s": 13.2},
        {"stage": "ended", "at_s": 44.0},
    ]
    record = {"stages": stages, "ended_s": 44.0}
    assert stages_of(record) == ", injecting 3 s, recovering 31 s"


def test_a_verb_that_hits_a_defect_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As each verb reports it, without a traceback; a refusal is no defect."""

    def broken(_: object) -> int:
        raise KeyError("x")

    assert cli.main(["no-such-verb"]) == 2
    assert not is_defect(capsys.readouterr().err)
    monkeypatch.setattr("cockpit.cli.read.config.run", broken)
    assert cli.main(["themes"]) == 1
    assert is_defect(capsys.readouterr().err)


def test_the_script_that_looks_for_remains_is_python() -> None:
    ast.parse(REMAINS)
