"""The verbs, without importing any: `cockpit --help` must cost nothing."""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """`module` is under cockpit.cli; it has `arguments(parser, verb)` and `run(args) -> int`."""

    name: str
    module: str
    summary: str
    section: str


VERBS = (
    Verb("demo", "cluster.demo", "a local Ray cluster, a run on it, and the UI", "Start"),
    Verb("local", "cluster.local", "a local cluster without a run: up, down, status", "Start"),
    Verb("plan", "cluster.plan", "what cockpit up would create, and its cost", "Start"),
    Verb("up", "cluster.up", "create a cluster and wait until it is ready", "Start"),
    Verb("down", "cluster.down", "delete what cockpit up created", "Start"),
    Verb("manifests", "cluster.manifests", "the manifests and examples: list or write", "Start"),
    Verb(
        "doctor",
        "cluster.doctor",
        "check what cockpit needs, and suggest fixes",
        "Start",
    ),
    Verb("preflight", "cluster.preflight", "check the pods that a job would use", "Start"),
    Verb("clusters", "read.clusters", "all clusters, across all contexts", "Read"),
    Verb("contexts", "read.clusters", "the contexts of the kubeconfig", "Read"),
    Verb("status", "read.snapshot", "the state of the cluster, the run and the sources", "Read"),
    Verb("groups", "read.snapshot", "the worker groups", "Read"),
    Verb("pods", "read.snapshot", "the pods", "Read"),
    Verb("nodes", "read.snapshot", "the Ray nodes, or the Kubernetes nodes", "Read"),
    Verb("jobs", "read.snapshot", "the submitted jobs", "Read"),
    Verb("runs", "read.snapshot", "the training runs and their attempts", "Read"),
    Verb("ranks", "read.snapshot", "the ranks of the current run", "Read"),
    Verb("events", "read.snapshot", "the events of the cluster and of the runs", "Read"),
    Verb("alerts", "read.alerts", "problems with the run, and what to do", "Read"),
    Verb("logs", "read.logs", "the log of a job, a pod or a rank", "Read"),
    Verb("watch", "read.watch", "follow the telemetry, one sample per line", "Read"),
    Verb("record", "recordings.record", "record runs without the UI, until they end", "Read"),
    Verb("recordings", "recordings.recordings", "list, tag or delete recorded runs", "Read"),
    Verb("replay", "recordings.replay", "play a recorded run in the UI", "Read"),
    Verb("export", "recordings.export", "a recorded run as Parquet, CSV or JSON lines", "Read"),
    Verb("report", "recordings.report", "a recorded run as HTML, Markdown or JSON", "Read"),
    Verb("share", "recordings.share", "a recorded run as one HTML file that replays it", "Read"),
    Verb("trials", "read.trials", "the trials of Ray Tune, the best first", "Read"),
    Verb("open", "read.open", "a link to the dashboard, Grafana or MLflow", "Read"),
    Verb("experiments", "read.experiments", "the runs of MLflow: list, show, compare", "Read"),
    Verb("hang", "read.hang", "why a run makes no progress, and which ranks cause it", "Read"),
    Verb("why", "read.why", "why an attempt or a job ended, or what a pod waits for", "Read"),
    Verb("stack", "read.profile", "the stack of a rank's process", "Read"),
    Verb("profile", "read.profile", "a flame graph of a rank's process", "Read"),
    Verb("timeline", "read.timeline", "write tasks and the run as a trace for Perfetto", "Read"),
    Verb("describe", "read.inspect", "an object and its events, as readable text", "Read"),
    Verb("yaml", "read.inspect", "an object of the cluster as YAML", "Read"),
    Verb("scale", "change.scale", "change a worker group's number of pods", "Change"),
    Verb("launch", "change.launch", "submit a bundled job, or any command", "Change"),
    Verb("stop", "change.job", "stop a job", "Change"),
    Verb("delete", "change.job", "delete a job that has ended", "Change"),
    Verb("resume", "change.job", "submit a job again, from its last checkpoint", "Change"),
    Verb("kill", "change.kill", "kill a pod or a rank's pod, and measure the recovery", "Change"),
    Verb("drill", "drill.drill", "inject a fault and measure the recovery", "Change"),
    Verb("guard", "change.guard", "respond to hangs and repeated failures automatically", "Change"),
    Verb("exec", "change.exec", "run a command or a shell in a pod", "Change"),
    Verb(
        "suspend", "change.suspend", "delete all pods of a cluster, and keep the cluster", "Change"
    ),
    Verb("unsuspend", "change.suspend", "create the pods of a suspended cluster again", "Change"),
    Verb("cordon", "change.cordon", "keep new pods off a Kubernetes node", "Change"),
    Verb("uncordon", "change.cordon", "allow new pods on a Kubernetes node again", "Change"),
    Verb("config", "read.config", "show or edit the settings, and their sources", "About"),
    Verb("keys", "read.config", "the keys of the UI", "About"),
    Verb("themes", "read.config", "the themes of the UI", "About"),
    Verb("version", "shell.version", "the versions of cockpit and of its data formats", "About"),
    Verb("completion", "shell.completion", "the completion script for bash, zsh or fish", "About"),
    Verb("manual", "shell.manual", "the manual page (man page)", "About"),
)
BY_NAME = {verb.name: verb for verb in VERBS}
OLD_NAMES = {"machines": ("nodes", "--kubernetes")}
"""Earlier names, which scripts may still use, and what replaces each."""
