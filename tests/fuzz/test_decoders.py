"""Broken answers for the smaller decoders: each is refused, or what it gives is clean."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from msgspec import convert

from cockpit.backends.kuberay import one_shot
from cockpit.backends.kuberay.api import exec as kubernetes_exec
from cockpit.backends.kuberay.api.error_message import _status
from cockpit.backends.kuberay.api.fields import items, usable
from cockpit.backends.kuberay.waiting import kueue, volcano
from cockpit.backends.kuberay.waiting.pod_stage import claims, pod_stage
from cockpit.backends.kuberay.waiting.watch import entries
from cockpit.backends.ssh.description import Host
from cockpit.backends.ssh.host_check import Checked, different_versions, findings, warnings
from cockpit.backends.ssh.state import host_state
from cockpit.cli.read import timeline
from cockpit.format import moment
from cockpit.logs.line import LineParser
from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import CockpitError
from cockpit.preflight import bucket, facts, network
from cockpit.recorder.reading import annotation
from cockpit.sources.history_server import server
from cockpit.sources.ray import answers
from cockpit.sources.ray.dashboard import _read
from cockpit.sources.ray.flamegraph import profile
from tests.backends.kuberay.queue_objects import (
    ADMITTED,
    PENDING,
    RESERVED,
    cluster_queue,
    condition,
    local_queue,
    pod_group,
    volcano_queue,
    workload,
)
from tests.backends.kuberay.recorded_objects import Moment
from tests.fuzz.cases import assert_clean, broken, broken_bytes, examine, quick_and_nightly

NOW_S = 1_763_713_000.0
HOST = Host("a", "10.0.0.2", "a", "workers")
REPLICA = {
    "replica_id": "r", "state": "RUNNING", "node_ip": "1.2.3.4", "pid": 4,
    "start_time_s": 1_763_712_000.0, "log_file_path": "/x/logs/serve/r.log",
}  # fmt: skip
DEPLOYMENT = {
    "name": "d", "status": "HEALTHY", "message": "x", "target_num_replicas": 2,
    "deployment_config": {
        "num_replicas": 2, "max_ongoing_requests": 5,
        "autoscaling_config": {"min_replicas": 1, "max_replicas": 3},
    },
    "replicas": [REPLICA],
}  # fmt: skip
APP = {"name": "app", "status": "RUNNING", "message": "m", "deployments": {"d": DEPLOYMENT}}
KILLED = {
    "worker_id": "w", "node_id": "n", "ip": "1.2.3.4", "pid": 3, "exit_type": "NODE_OUT_OF_MEMORY",
    "exit_detail": "killed by the memory monitor", "end_time_ms": 1_763_712_000_000,
}  # fmt: skip
QUEUES = {
    "workloads": [workload(conditions=(PENDING,)), workload(conditions=(RESERVED, ADMITTED))],
    "localqueues": [local_queue()],
    "clusterqueues": [cluster_queue(conditions=(condition("Active", True, "x"),), cohort="c")],
    "podgroups": [pod_group(unschedulable="no", scheduled_s=3)],
    "queues": [volcano_queue()],
}
PODS = [pod for name in ("ready", "starting", "workers-wait") for pod in Moment.of(name).raw_pods]
TITLES = ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node"]
ROW = {
    "cells": ["demo-head", "1/1", "Running", "3 (2m ago)", "5m", "10.0.0.1", "node"],
    "object": {
        "metadata": {
            "name": "x", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"ray.io/group": "g", "ray.io/node-type": "worker"},
        }
    },
}  # fmt: skip
AGENT = {
    "host": {"cpus": 2.0, "gpus": ["A100"], "problems": ["x"], "boot": "b"},
    "pods": [
        {
            "pod": {
                "name": "a-x1abc", "group": "workers", "node_type": "worker", "phase": "Running",
                "ready": True, "ip": "10.0.0.2", "host": "a", "uid": "u", "reason": "r",
                "created_s": 1.0,
            },
            "head_uid": "u", "over": False, "shown": True, "started_s": 1.0,
            "terminating": False, "ended_s": None, "reason": "x",
        }
    ],
}  # fmt: skip
CHECKED = {
    "python": "3.11.7", "ray": "2.60.0", "at_s": 1.0, "pods": ["a-x1abc"], "others": ["b-x"],
    "cluster": "u", "address": "in use", "disk_bytes": 10, "disk_free_bytes": 5, "gpus": ["A100"],
    "problems": ["nvidia-smi: x"], "open_ports": [8265], "tokenless": ["raylet"],
    "private_ports": [8265], "public": ["8.8.8.8"],
}  # fmt: skip
CHECKED_HOST = convert(CHECKED, Checked)
SESSION = {
    "namespace": "ml", "name": "demo", "sessionName": "session_1", "createTimeStamp": 1.0,
    "ownerKind": "rayjob", "ownerName": "j",
}  # fmt: skip
TASK = {
    "cat": "task", "name": "t", "pid": "1.2.3.4", "tid": "w:1", "ts": 1.0, "dur": 2.0, "ph": "X",
    "args": {"a": 1}, "cname": "x",
}  # fmt: skip
FACTS = {
    "python": "3.11", "versions": {"ray": "2.60"}, "missing": [], "gpus": 1,
    "memory": {"host": "h", "limit_bytes": 1, "used_bytes": 2},
    "shm": {"path": "/dev/shm", "free_bytes": 1, "total_bytes": 2},
}  # fmt: skip
LOGGED = {"levelname": "ERROR", "message": "boom\nx", "timestamp_ns": 1_763_712_000_000_000_000}
LOG_LINES = [
    b"[2026-11-23 12:00:00,123 I 1 2] hello",
    b"I1123 12:00:00.1 x",
    b"(RayTrainWorker pid=1, ip=10.0.0.3) [rank3]:[E1123 12:00:00.1 f] y",
    b"2026-11-23T12:00:00.123456789Z z \x1b[31m",
]
FLAMES = (
    b'<g><title>main (a.py:1) (10 samples, 50.00%)</title><rect x="0" y="36" fg:w="10"/></g>'
    b'<g><title>all (20 samples, 100%)</title><rect x="0" y="52" fg:x="0" fg:w="20"/></g>'
)
FAILED = {
    "status": "Failure", "message": "command terminated", "reason": "NonZeroExitCode", "code": 500,
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}  # fmt: skip


def queues(raw: Any) -> Any:
    parsers = {
        "workloads": kueue.workload, "localqueues": kueue.local_queue,
        "clusterqueues": kueue.cluster_queue, "podgroups": volcano.pod_group,
        "queues": volcano.queue,
    }  # fmt: skip
    found: dict[str, dict[str, Any]] = {}
    for kind, parse in parsers.items():
        parsed = usable(parse, items(raw, kind))
        found[kind] = {str(at): each for at, each in enumerate(parsed) if each is not None}
    return entries(found, None)


def traced(raw: Any) -> Any:
    events = [event for event in raw if isinstance(event, dict)] if isinstance(raw, list) else []
    made = timeline.as_exact(timeline.trace(events, [], {"a": "b"}))
    json.dumps(made, allow_nan=False)
    return None


def lines_of(raw: Any) -> Any:
    parser = LineParser(lambda: NOW_S)
    texts = [raw] if isinstance(raw, str) else [json.dumps(raw)]
    return [
        line.text for line in parser.parse([part for text in texts for part in text.split("\n")])
    ]


def pods_of_table(raw: Any) -> Any:
    return usable(
        lambda row: one_shot._pod(TITLES, row, {"g": 1.0}), items({"rows": [raw]}, "rows")
    )


def agent(raw: Any) -> Any:
    """Each time has a date."""
    state = host_state(raw, HOST)
    for pod in state.pods:
        for time_s in (pod.started_s, pod.ended_s, pod.pod.created_s, pod.pod.ended_s):
            moment(time_s or 0.0)
    return state


def findings_of(checked: Checked) -> Any:
    moment(checked.at_s)
    found = [*findings(HOST, checked), *warnings(HOST, checked)]
    return [found, different_versions({"a": checked, "b": CHECKED_HOST})]


DECODERS: dict[str, tuple[list[Any], Callable[[Any], Any]]] = {
    "Serve": ([{"applications": {"app": APP}}], lambda raw: _read("/", raw, answers.deployments)),
    "dead workers": (
        [{"data": {"result": {"result": [KILLED]}}}],
        lambda raw: _read("/", raw, answers.memory_kills),
    ),
    "timeline": ([[TASK]], traced),
    "queues": ([QUEUES], queues),
    "stage of a pod": (PODS, lambda raw: usable(pod_stage, [raw])),
    "claims of a pod": (PODS, lambda raw: usable(claims, [raw])),
    "table of pods": ([ROW], pods_of_table),
    "end of a command": (
        [FAILED],
        lambda raw: kubernetes_exec._ended(json.dumps(raw).encode(), "p"),
    ),
    "error of the API server": ([FAILED], lambda raw: _status(json.dumps(raw).encode())),
    "agent of a host": ([AGENT], agent),
    "check of a host": ([CHECKED], lambda raw: findings_of(convert(raw, Checked))),
    "sessions of the History Server": ([SESSION], lambda raw: usable(server._session, [raw])),
    "facts of a pod": ([FACTS], lambda raw: facts.facts(json.dumps(raw))),
    "measured network": (
        [{"pairs": {"p": {"bytes_per_s": 1.0, "latency_s": 0.1, "error": "x"}}}],
        lambda raw: network.decoded(json.dumps(raw)) and None,  # cleaned when it is used
    ),
    "tested bucket": (
        [{"error": "e", "has_keys": True, "was_read": True}],
        lambda raw: bucket._decoded(json.dumps(raw)),
    ),
    "structured log": ([LOGGED], lines_of),
}


@pytest.mark.parametrize("name", DECODERS)
@quick_and_nightly(800)
def test_answer_is_refused_or_clean(name: str, cases: int) -> None:
    documents, decode = DECODERS[name]

    def check(raw: Any) -> None:
        read = loads(json.dumps(raw))
        with suppress(CockpitError, ValueError):
            assert_clean(decode(read))

    examine(broken(*documents), check, cases)


@quick_and_nightly(800)
def test_log_lines_of_any_bytes_are_clean(cases: int) -> None:
    def check(raw: bytes) -> None:
        assert_clean(lines_of(raw.decode(errors="replace")))

    examine(broken_bytes(st.sampled_from(LOG_LINES)), check, cases)


@quick_and_nightly(800)
def test_flame_graph_of_any_bytes_is_read(cases: int) -> None:
    examine(broken_bytes(st.just(FLAMES)), lambda raw: profile(raw, 5.0), cases)


@quick_and_nightly(800)
def test_notes_of_a_recording_are_read_or_an_error(cases: int, tmp_path: Path) -> None:
    recording = tmp_path / "one.cockpit"
    document = json.dumps({"tags": ["a", "b"], "note": "text"}).encode()

    def check(raw: bytes) -> None:
        annotation.path_of(recording).write_bytes(raw)
        assert_clean(annotation.read(recording))

    examine(broken_bytes(st.just(document)), check, cases)
