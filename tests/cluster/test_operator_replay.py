"""The fake operator, or the real one, acts on a real API server as the recorded one."""

from __future__ import annotations

import asyncio
import copy
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.operator.api import Api
from tests.cluster.recordings.compare import disagreements
from tests.cluster.recordings.recording import NAMES, Recording
from tests.cluster.recordings.replay import Replay, Seen
from tests.cluster.testbed import Testbed

REAL = os.environ.get("KUBERAY_OPERATOR", "")


@contextmanager
def operator(testbed: Testbed, namespace: str, folder: Path) -> Iterator[None]:
    """An operator of a separate namespace; killed by its PID."""
    if REAL:
        argv = [REAL, "--enable-leader-election=false", f"--watch-namespace={namespace}"]
        argv += ["--metrics-addr=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"]
    else:
        argv = [sys.executable, "-m", "tests.cluster.operator", "--namespace", namespace]
        argv += ["--kubeconfig", str(testbed.kubeconfig)]
    environment = {**os.environ, "KUBECONFIG": str(testbed.kubeconfig)}
    log = folder / "operator.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            argv, env=environment, stdout=output, stderr=output, cwd=Path(__file__).parents[2]
        )
    try:
        yield
        assert process.poll() is None, f"the operator ended by itself:\n{log.read_text()[-2000:]}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_agrees_with_itself(name: str) -> None:
    recording = Recording.load(name)
    assert not disagreements(recording, recording.made, _as_seen(recording))


@pytest.mark.parametrize(
    ("of", "field", "value"),
    [
        ("cluster", "readyWorkerReplicas", 9),
        ("cluster", "RayClusterProvisioned", "True ForAnotherReason"),
        ("cluster", "state", "failed"),
        ("pod demo-gpu-worker-92lr4", "index", "7"),
        ("pod demo-gpu-worker-92lr4", "grace_s", 5),
        ("event", "reason", "CreatedSomethingElse"),
        ("service demo-head-svc", "is", "deleted"),
    ],
)
def test_one_wrong_fact_is_found(of: str, field: str, value: object) -> None:
    recording = Recording.load("operator")
    seen = _as_seen(recording)
    facts, at = next(
        (done.facts, at)
        for done in seen
        for at, fact in enumerate(done.facts)
        if fact.of == of and field in fact.change
    )
    facts[at] = replace(facts[at], change={**facts[at].change, field: value})
    assert len(disagreements(recording, recording.made, seen)) >= 1


def test_one_wrong_field_of_a_pod_is_found() -> None:
    recording = Recording.load("autoscaler")
    made = copy.deepcopy(recording.made)
    made["head"]["spec"]["containers"][1]["env"][3]["value"] = "v2"
    (found,) = disagreements(recording, made, _as_seen(recording))
    assert found.startswith("head: .spec.containers[1].env[3].value is 'v2'")


def _as_seen(recording: Recording) -> list[Seen]:
    return [Seen(action.name, list(action.facts)) for action in recording.actions]


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize("name", NAMES)
async def test_an_operator_agrees_with_the_recording(
    control_plane: Testbed, tmp_path: Path, name: str
) -> None:
    recording = Recording.load(name)
    namespace = control_plane.namespace(f"replay-{name}-{secrets.token_hex(2)}")
    api = Api(control_plane.kubeconfig)
    replay = Replay(api, namespace, recording)
    try:
        with operator(control_plane, namespace, tmp_path):
            await asyncio.wait_for(replay.run(), 240)
    finally:
        await api.delete(f"/api/v1/namespaces/{namespace}")
        await api.aclose()
    found = disagreements(recording, replay.made, replay.seen)
    assert not found, "\n".join(found)
