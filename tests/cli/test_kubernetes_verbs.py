"""The verbs for Kubernetes, on a backend that records its calls."""

from __future__ import annotations

import errno
import io
import json
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.actions import audit
from cockpit.backends.protocol import ExecResult
from cockpit.cli import main as cli
from cockpit.cli.change import rayjob as following
from cockpit.cli.options import connect
from cockpit.cli.read import why_waiting
from cockpit.config import file
from cockpit.model.cluster import (
    ClusterHealth,
    ClusterRef,
    KubernetesNode,
    NodeType,
    Pod,
    PodPhase,
    WorkerGroup,
)
from cockpit.model.event import (
    ClusterSeen,
    Event,
    GroupsListed,
    JobsListed,
    KubernetesNodesListed,
    PodsListed,
    SourceHealth,
)
from cockpit.model.run import Job, JobStatus
from cockpit.session import builder
from tests.simulated_backend import ScriptedBackend

REF = ClusterRef("kuberay", "trainer", "ml", "prod")
HEAD = Pod("trainer-head", "headgroup", NodeType.HEAD, PodPhase.RUNNING, True, host="node-1")
ONE = Pod("trainer-gpu-a", "gpu", NodeType.WORKER, PodPhase.RUNNING, True, host="node-2", gpus=8)
GPU = WorkerGroup("gpu", 1, 1, 0, 4)
RAYJOB = Job("train-7x", "python train.py", JobStatus.RUNNING, rayjob="train-ab12", submitted=True,
             deployment="Running", cluster="trainer")  # fmt: skip


@dataclass(slots=True)
class Cluster(ScriptedBackend):
    """A pod's log names its container; a command is echoed."""

    async def logs(
        self, pod: str, *, follow: bool, lines: int = 1000, previous: bool = False
    ) -> AsyncIterator[str]:
        yield f"{pod} previous={previous} follow={follow}"

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        await ScriptedBackend.exec(self, pod, argv)
        return ExecResult(7, "out\n", "err\n")


def events(
    health: ClusterHealth = ClusterHealth.READY,
    group: WorkerGroup = GPU,
    *more: Event,
) -> list[Event]:
    at: dict[str, Any] = {"at_s": 1.0, "source": "backend"}
    return [
        ClusterSeen(ref=REF, health=health, **at),
        GroupsListed(groups=(group,), **at),
        PodsListed(pods=(HEAD, ONE), **at),
        JobsListed(jobs=(RAYJOB,), **at),
        KubernetesNodesListed(
            nodes=(
                KubernetesNode("node-1", True, cpus=8),
                KubernetesNode("node-2", False, cordoned=True, reason="disk pressure", gpus=8),
            ),
            **at,
        ),
        *more,
        SourceHealth(ok=True, **at),
    ]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(events(), REF)
    monkeypatch.setattr(connect, "backend", lambda *_, **__: made)
    monkeypatch.setattr(connect, "SETTLE_S", 0.2)
    # No dashboard: sources fail at once and the snapshot continues without them.
    original = builder.session_on

    def only_backend(cluster: Any, *, sources: Sequence[str] = ()) -> Any:
        return original(cluster, sources=())

    monkeypatch.setattr(builder, "session_on", only_backend)
    monkeypatch.setattr(
        connect, "wait_for", lambda s, *_: s.wait(lambda store: "backend" in store.sources, 5)
    )
    return made


def changes(cluster: Cluster) -> list[tuple[str, ...]]:
    others = ("announce", "aclose", "hold", "release")
    return [ask for ask in cluster.asked if ask[0] not in others]


CHANGING = [
    (["scale", "gpu", "2"], "scale"),
    (["kill", "trainer-gpu-a"], "delete_pod"),
    (["suspend"], "suspend"),
    (["cordon", "node-1"], "cordon"),
    (["uncordon", "node-2"], "cordon"),
    (["stop", "train-ab12"], "rayjob"),
    (["delete", "train-7x"], "rayjob"),
    (["stop", "plain-job"], "launch"),
    (["resume", "plain-job"], "launch"),
    (["launch", "checkpointed"], "launch"),
    (["launch", "checkpointed", "--via", "rayjob"], "rayjob"),
]


@pytest.mark.parametrize(("argv", "verb"), CHANGING, ids=lambda value: str(value))
def test_forbidden_change_exits_with_4_before_a_request(
    argv: list[str], verb: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.denied = {verb: "you may not do that in namespace ml"}
    assert cli.main([*argv, "--yes"]) == 4
    text = capsys.readouterr().err
    assert "You may not do that in namespace ml." in text
    assert "cockpit doctor" in text
    assert changes(cluster) == []
    assert not audit.path().exists()


@pytest.mark.parametrize(("argv", "verb"), CHANGING, ids=lambda value: str(value))
def test_read_only_refuses_and_a_dry_run_only_reports(
    argv: list[str], verb: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*argv, "--yes", "--read-only"]) == 4
    assert "read-only" in capsys.readouterr().err
    assert cli.main([*argv, "--dry-run"]) == 0
    text = capsys.readouterr().err
    assert "Dry run: nothing was changed." in text
    assert len(text.splitlines()) >= 2, "it says what it would do"
    assert changes(cluster) == []


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["scale", "gpu", "+1"], ("scale", "gpu", "2")),
        (["scale", "gpu", "--min", "1"], ("scale", "gpu", "None")),
        (["suspend"], ("suspend", "True")),
        (["cordon", "node-1"], ("cordon", "node-1", "True")),
        (["uncordon", "node-2"], ("cordon", "node-2", "False")),
        (["stop", "train-ab12"], ("stop_rayjob", "train-ab12")),
        (["delete", "train-7x"], ("delete_rayjob", "train-ab12")),
    ],
)
def test_a_change_is_made_once_noted_and_announced(
    argv: list[str], asked: tuple[str, ...], cluster: Cluster
) -> None:
    assert cli.main([*argv, "--yes", "--cluster", "trainer"]) == 0
    assert changes(cluster) == [asked]
    assert [ask[0] for ask in cluster.asked].count("announce") == 1
    [line] = [json.loads(line) for line in audit.path().read_text().splitlines()]
    assert (line["context"], line["namespace"], line["result"]) == ("prod", "ml", "done")


DESTRUCTIVE = [
    ["scale", "gpu", "0"],
    ["kill", "trainer-gpu-a", "--no-wait"],
    ["suspend"],
    ["cordon", "node-1"],
    ["stop", "train-ab12"],
    ["delete", "train-7x"],
    ["drill", "run", "pod-kill"],
]
HARMLESS = [["uncordon", "node-2"], ["launch", "checkpointed", "--via", "rayjob", "--own-cluster"]]
WHERE = "Cluster: context prod, namespace ml, RayCluster trainer."


@pytest.fixture
def no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drill uses the sources of a watched session: here it has none."""
    from cockpit.cli.drill import run
    from cockpit.session import monitored
    from cockpit.session.session import Session

    monkeypatch.setattr(monitored, "monitored_session_on", Session)
    monkeypatch.setattr(monitored, "prober_on", lambda session: None)
    monkeypatch.setattr(run, "SOURCES", ("backend",))


@pytest.mark.usefixtures("no_history")
@pytest.mark.parametrize("argv", [*DESTRUCTIVE, *HARMLESS], ids=lambda argv: " ".join(argv))
def test_every_plan_names_the_cluster_first(
    argv: list[str], cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*argv, "--dry-run"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == WHERE


@pytest.mark.usefixtures("no_history")
@pytest.mark.parametrize("argv", DESTRUCTIVE, ids=lambda argv: " ".join(argv))
def test_yes_needs_the_cluster_by_its_name(
    argv: list[str],
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cli.main([*argv, "--yes"]) == 2
    text = capsys.readouterr().err
    assert "no flag, variable or profile names one" in text
    assert "--context prod -n ml --cluster trainer" in text
    assert changes(cluster) == []
    if argv[0] == "drill":
        return  # it would wait for the pod's replacement
    monkeypatch.setenv("COCKPIT_CLUSTER", "trainer")
    assert cli.main([*argv, "--yes"]) == 0
    assert len(changes(cluster)) == 1


def test_a_profile_names_the_cluster_too(cluster: Cluster) -> None:
    configure('profile = "p"', "[profiles.p]", 'cluster = "trainer"')
    assert cli.main(["scale", "gpu", "0", "--yes"]) == 0


def test_harmless_change_needs_no_cluster_name(cluster: Cluster) -> None:
    assert cli.main(["uncordon", "node-2", "--yes"]) == 0


def configure(*lines: str) -> None:
    where = file.path()
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text("\n".join(lines))


PROTECTED = '[profiles.prod]\ncontext = "prod"\nprotected = true'


@pytest.mark.usefixtures("no_history")
@pytest.mark.parametrize("argv", DESTRUCTIVE, ids=lambda argv: " ".join(argv))
def test_yes_is_not_enough_on_a_protected_cluster(
    argv: list[str], cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(PROTECTED)
    named = ("--cluster", "trainer", "--yes")
    assert cli.main([*argv, *named]) == 4
    text = capsys.readouterr().err
    assert "Cluster trainer is protected: --yes alone does not change it." in text
    assert "Add --i-mean trainer" in text
    assert cli.main([*argv, *named, "--i-mean", "trainer-2"]) == 2
    assert "--i-mean trainer-2 is not the cluster of this plan, trainer." in capsys.readouterr().err
    assert changes(cluster) == []
    if argv[0] != "drill":
        assert cli.main([*argv, *named, "--i-mean", "trainer"]) == 0
        assert len(changes(cluster)) == 1


@pytest.mark.parametrize(
    ("answer", "code"), [("y\n", 1), ("yes\n", 1), ("trainer-2\n", 1), ("\n", 1), ("trainer\n", 0)]
)
def test_a_protected_cluster_asks_for_its_name(
    answer: str,
    code: int,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    configure(PROTECTED)
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert cli.main(["scale", "gpu", "0"]) == code
    assert "Type the cluster's name, trainer, to confirm:" in capsys.readouterr().err
    assert len(changes(cluster)) == (0 if code else 1)


def test_command_in_a_pod_of_a_protected_cluster_is_confirmed_first(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(PROTECTED)
    flags = ["exec", "trainer-gpu-a", "--cluster", "trainer"]
    command = ["--", "t", "--token", "s3same"]
    assert cli.main([*flags, *command]) == 2, "nobody can be asked"
    assert cli.main([*flags, "--yes", *command]) == 4
    assert cli.main([*flags, "--dry-run", *command]) == 0
    said = capsys.readouterr().err
    assert "Run t --token '***' in pod trainer-gpu-a." in said
    assert "s3same" not in said
    assert changes(cluster) == []
    assert cli.main([*flags, "--yes", "--i-mean", "trainer", *command]) == 7
    assert len(changes(cluster)) == 1


def test_harmless_change_needs_no_name_on_a_protected_cluster(cluster: Cluster) -> None:
    configure(PROTECTED)
    assert cli.main(["uncordon", "node-2", "--yes"]) == 0


def test_verb_ends_well_though_its_audit_line_could_not_be_written(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Filling(Cluster):
        async def suspend(self, suspended: bool, *, uid: str = "") -> None:
            await Cluster.suspend(self, suspended, uid=uid)
            monkeypatch.setattr(audit, "_opened", full)

    filling = Filling(events(), REF)
    monkeypatch.setattr(connect, "backend", lambda *_, **__: filling)
    assert cli.main(["suspend", "--yes", "--cluster", "trainer"]) == 0
    assert changes(filling) == [("suspend", "True")]
    assert "suspend of trainer, done, is not in it" in caplog.text
    filling.events = events(ClusterHealth.SUSPENDED)
    assert cli.main(["unsuspend", "--yes"]) in (1, 2), "the next change is not begun"
    assert len(changes(filling)) == 1


def test_a_suspension_names_what_it_removes(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["suspend", "--dry-run"]) == 0
    text = capsys.readouterr().err
    assert "this deletes 2 pods, including the head" in text
    assert "train-7x" in text
    assert "cockpit unsuspend" in text
    assert cli.main(["unsuspend", "--yes"]) == 0
    assert "Cluster trainer is not suspended." in capsys.readouterr().err
    assert changes(cluster) == []
    cluster.events = events(ClusterHealth.SUSPENDED)
    assert cli.main(["suspend", "--yes"]) == 0
    assert "Cluster trainer is already suspended." in capsys.readouterr().err
    assert cli.main(["unsuspend", "--yes"]) == 0
    assert changes(cluster) == [("suspend", "False")]


@pytest.mark.parametrize(
    "argv",
    [["scale", "gpu", "2"], ["suspend"], ["unsuspend"], ["why", "pods/x"], ["why", "cluster"]],
)
def test_cluster_that_does_not_answer_is_not_taken_for_an_empty_one(
    argv: list[str],
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(why_waiting, "READ_S", 0.0)
    cluster.events = [SourceHealth(at_s=1.0, source="backend", ok=False, error="timed out")]
    assert cli.main(argv) == 3
    assert "The backend source of" in capsys.readouterr().err
    assert changes(cluster) == []


def test_worker_group_that_is_mistyped_gets_the_nearest(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["scale", "gpus", "2"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "There is no worker group 'gpus': did you mean gpu?",
        "Groups: gpu.",
        "cockpit groups lists them.",
    ]


def test_rayjob_is_resumed_by_its_name(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.events = [*events(), SourceHealth(at_s=1.0, source="ray", ok=True)]
    assert cli.main(["resume", "train-ab12", "--dry-run"]) == 0
    assert "Submit job train-7x again" in capsys.readouterr().err


def test_a_node_that_is_cordoned_already_is_left_alone(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cordon", "node-2", "--yes"]) == 0
    assert "cordoned already" in capsys.readouterr().err
    assert cli.main(["cordon", "node-3", "--yes"]) == 2
    assert "did you mean node-" in capsys.readouterr().err
    assert cli.main(["cordon", "node-1", "--dry-run"]) == 0
    assert "trainer-head of this cluster stay there" in capsys.readouterr().err
    assert changes(cluster) == []


AUTOSCALED = replace(GPU, autoscaled=True, desired=2, note="wanted 0, running 2")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["gpu", "9"], "9 is above the group's max of 4: limited to 4."),
        (["gpu", "3"], "to keep 3, set the group's min to 3: cockpit scale gpu --min 3"),
        (["gpu", "3", "--min", "3"], "continues to change"),
        (["gpu", "1"], "keeps busy workers until they are idle"),
        (["gpu", "1", "--remove", "trainer-gpu-a"], "Removed first: trainer-gpu-a."),
        (["gpu", "1"], "At present: wanted 0, running 2."),
    ],
)
def test_the_plan_reports_what_the_autoscaler_will_make_of_it(
    argv: list[str], words: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.events = events(ClusterHealth.READY, AUTOSCALED)
    assert cli.main(["scale", *argv, "--dry-run"]) == 0
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        ("trainer-gpu-z", "There is no pod 'trainer-gpu-z' in group gpu."),
        ("trainer-head", "Pod trainer-head is of group headgroup, not of gpu."),
        ("trainer-gpu-e", "There is no pod 'trainer-gpu-e' in group gpu."),
    ],
)
def test_scale_refuses_to_remove_pod_of_other_group_or_ended_pod(
    pod: str, why: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = replace(ONE, name="trainer-gpu-e", phase=PodPhase.FAILED, ended_s=1.0)
    listed = PodsListed(at_s=2.0, source="backend", pods=(HEAD, ONE, ended))
    cluster.events = events(ClusterHealth.READY, GPU, listed)
    argv = ["scale", "gpu", "0", "--remove", pod, "--yes", "--cluster", "trainer"]
    assert cli.main(argv) == 2
    assert why in capsys.readouterr().err
    assert changes(cluster) == []


def test_replicas_of_several_hosts_are_counted_as_replicas(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    group = replace(GPU, desired=4, ready=4, max=16, hosts=4)
    cluster.events = events(ClusterHealth.READY, group)
    assert cli.main(["scale", "gpu", "+1", "--remove", "trainer-gpu-a", "--dry-run"]) == 0
    text = capsys.readouterr().err
    assert "from 1 to 2 replicas of 4 pods" in text
    assert "all 4 pods of its replica are removed" in text
    assert cli.main(["scale", "gpu", "--yes"]) == 2


def test_nodes_are_listed_with_the_pods_that_are_on_them(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["nodes", "--kubernetes", "-o", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["node-2"]["cordoned"], rows["node-2"]["pods"]) == (True, 1)
    refused = SourceHealth(
        at_s=1.0, source="backend:nodes", ok=False, error="you may not list nodes"
    )
    cluster.events = events(ClusterHealth.READY, GPU, refused)
    assert cli.main(["nodes", "--kubernetes"]) == 4
    assert "you may not list nodes" in capsys.readouterr().err
    cluster.ref = ClusterRef("local", "demo")
    assert cli.main(["machines"]) == 2  # the earlier name of the verb
    assert "has no Kubernetes nodes" in capsys.readouterr().err


def test_missing_permission_for_one_kind_keeps_the_other_rows(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = SourceHealth(at_s=1.0, source="backend:pods", ok=False, error="you may not")
    cluster.events = events(ClusterHealth.READY, GPU, refused)
    assert cli.main(["groups"]) == 0
    text = capsys.readouterr()
    assert "gpu" in text.out
    assert "The pods could not be listed: you may not" in text.err


def test_tables_have_kubernetes_columns_only_where_there_is_something_in_them(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["pods"]) == 0
    title = capsys.readouterr().out.splitlines()[0]
    assert "HOST" in title
    assert "GPUS" in title
    cluster.events = [
        *events()[:2],
        PodsListed(at_s=1.0, source="backend", pods=()),
        *events()[-1:],
    ]
    assert cli.main(["groups"]) == 0
    assert "NOTE" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("said", "kind", "name"),
    [
        ("trainer-head", "pod", "trainer-head"),
        ("pod/trainer-head", "pod", "trainer-head"),
        ("pods/x", "pod", "x"),
        ("cluster", "cluster", "trainer"),
        ("raycluster/other", "cluster", "other"),
        ("node/node-1", "node", "node-1"),
        ("job/train-ab12", "rayjob", "train-ab12"),
        ("group/gpu", "group", "gpu"),
    ],
)
def test_an_object_is_named_as_kubectl_users_do(
    said: str, kind: str, name: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["yaml", said]) == 0
    assert capsys.readouterr().out == f"kind: {kind}\nmetadata:\n  name: {name}\n"
    assert cli.main(["describe", said]) == 0
    assert capsys.readouterr().out == f"{kind} {name}\n"


@pytest.mark.parametrize("said", ["gizmo/x", "pod/", "/x"])
def test_an_object_of_no_kind_is_refused(said: str, cluster: Cluster) -> None:
    assert cli.main(["yaml", said]) == 2


def test_the_log_before_a_restart_is_a_pods_alone(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["logs", "trainer-gpu-a", "--previous", "-f"]) == 0
    assert capsys.readouterr().out == "trainer-gpu-a previous=True follow=False\n"
    assert cli.main(["logs", "some-job", "-p"]) == 2


def test_a_command_ends_with_its_own_exit_code_and_streams(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["exec", "trainer-gpu-a", "--", "sh", "-c", "exit 7"]) == 7
    assert capsys.readouterr() == ("out\n", "err\n")
    assert changes(cluster) == [("exec", "trainer-gpu-a", "sh", "-c", "exit 7")]
    assert cli.main(["exec", "trainer-gpu-b", "--", "ls"]) == 2
    assert "did you mean trainer-gpu-a" in capsys.readouterr().err
    assert cli.main(["exec", "trainer-gpu-a"]) == 2, "no terminal for a shell"
    assert cli.main(["exec", "-t", "trainer-gpu-a", "--", "ls"]) == 2
    assert cli.main(["--read-only", "exec", "trainer-gpu-a", "--", "ls"]) == 4
    cluster.denied = {"exec": "you may not create pods/exec"}
    assert cli.main(["exec", "trainer-gpu-a", "--", "ls"]) == 4
    assert len(changes(cluster)) == 1


def test_log_of_a_rayjob_that_is_not_submitted_yet_reports_what_is_missing(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = replace(RAYJOB, status=JobStatus.PENDING, submitted=False)
    cluster.events = (*cluster.events, JobsListed(at_s=9.0, source="backend", jobs=(waiting,)))
    assert cli.main(["logs", "train-ab12"]) == 3
    text = capsys.readouterr().err
    assert "waiting until the operator has submitted the job to Ray" in text
    assert "Add -f" in text


def test_a_rayjob_is_launched_and_followed_to_its_end(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    async def create(self: Cluster, spec: Any) -> str:
        made.append(spec.name)
        over = replace(RAYJOB, status=JobStatus.FAILED, rayjob=spec.name, message="it was ended")
        listed = JobsListed(at_s=2.0, source="backend", jobs=(over,))
        sessions[-1].dispatch(listed)
        return str(spec.name)

    sessions: list[Any] = []
    original = builder.session_on

    def remembered(cluster: Any, *, sources: Sequence[str] = ()) -> Any:
        sessions.append(original(cluster, sources=sources))
        return sessions[-1]

    monkeypatch.setattr(builder, "session_on", remembered)
    monkeypatch.setattr(Cluster, "create_rayjob", create)
    monkeypatch.setattr(following, "LOG_END_S", 0.1)
    argv = ["launch", "checkpointed", "--via", "rayjob", "--own-cluster", "--deadline", "60", "-f"]
    assert cli.main([*argv, "--replicas", "gpu=2"]) == 1
    text = capsys.readouterr()
    assert text.out.strip() == made[0]
    assert "on a new cluster, a copy of" in text.err
    assert "KubeRay deletes the new cluster when the job ends." in text.err
    assert "KubeRay ends the job after 60 s." in text.err
    assert f"RayJob {made[0]} is FAILED: it was ended" in text.err


@pytest.mark.parametrize(
    "argv",
    [
        ["--ttl", "5"],
        ["--own-cluster"],
        ["--via", "rayjob", "--replicas", "gpu=2"],
        ["--via", "rayjob", "--own-cluster", "--replicas", "gpu"],
        ["--via", "rayjob", "--own-cluster", "--replicas", "gpu=many"],
        ["--via", "carrier-pigeon"],
        ["--via", "rayjob", "--ttl", "5"],
        ["--via", "rayjob", "--queue", "team-a"],
        ["--queue", "team-a"],
        ["--via", "rayjob", "--retries", "2"],  # the operator refuses it with clusterSelector
        ["--via", "rayjob", "--own-cluster", "--ttl", "-5"],
    ],
)
def test_flags_of_a_rayjob_that_make_no_sense_are_refused(
    argv: list[str], cluster: Cluster
) -> None:
    assert cli.main(["launch", "checkpointed", *argv]) == 2
    assert changes(cluster) == []


def test_hostile_output_does_not_take_hold_of_a_terminal(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hostile(self: Cluster, pod: str, argv: Sequence[str]) -> ExecResult:
        return ExecResult(0, "\x1b]0;owned\x07fine\x1b[2J\n", "")

    monkeypatch.setattr(Cluster, "exec", hostile)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli.main(["exec", "trainer-gpu-a", "--", "cat", "x"]) == 0
    assert capsys.readouterr().out == "fine\n"


def test_suspect_nodes_are_listed_with_their_evidence_and_a_cordon_is_proposed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    well = KubernetesNodesListed(
        at_s=1.0, source="backend", nodes=(KubernetesNode("node-1", ready=True),)
    )
    cluster.events = events(ClusterHealth.READY, GPU, well)
    assert cli.main(["nodes", "--suspect"]) == 0
    assert "No suspect nodes: 0 recorded runs" in capsys.readouterr().out
    nodes = (
        KubernetesNode("node-1", ready=True, problems=("KernelDeadlock",)),
        KubernetesNode("node-2", ready=False, cordoned=True, reason="kubelet stopped posting"),
    )
    seen = KubernetesNodesListed(at_s=1.0, source="backend", nodes=nodes)
    cluster.events = events(ClusterHealth.READY, GPU, seen)
    assert cli.main(["nodes", "--suspect"]) == 0
    out = capsys.readouterr().out
    assert "node-1: now: condition KernelDeadlock" in out
    assert "cockpit cordon node-1" in out
    assert "cockpit cordon node-2" not in out
    assert cli.main(["nodes", "--suspect", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["node"]) for row in rows] == [
        (name, name) for name in ("node-2", "node-1")
    ]
    assert cli.main(["nodes", "--suspect", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["node/node-2", "node/node-1"]
    assert cli.main(["nodes", "--suspect", "--watch"]) == 2
    assert "--watch and --suspect cannot be combined." in capsys.readouterr().err
    assert changes(cluster) == []
