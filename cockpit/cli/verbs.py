"""The verbs, without importing any: `cockpit --help` must cost nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """`module` is under cockpit.cli; it has `arguments(parser, verb)` and `run(args) -> int`."""

    name: str
    module: str
    summary: str
    section: str


VERBS = (
    Verb("demo", "demo", "a local Ray cluster, a run on it, and the screen", "Start"),
    Verb("local", "local", "a local cluster without a run: up, down, status", "Start"),
    Verb("doctor", "doctor", "check what cockpit needs, and how to fix it", "Start"),
    Verb("clusters", "clusters", "all clusters, over all contexts", "Read"),
    Verb("contexts", "contexts", "the contexts of the kubeconfig", "Read"),
    Verb("status", "look", "the state of the cluster, the run and the sources", "Read"),
    Verb("groups", "look", "the worker groups", "Read"),
    Verb("pods", "look", "the pods", "Read"),
    Verb("nodes", "look", "the Ray nodes", "Read"),
    Verb("machines", "look", "the Kubernetes nodes", "Read"),
    Verb("jobs", "look", "the submitted jobs", "Read"),
    Verb("runs", "look", "the training runs and their attempts", "Read"),
    Verb("ranks", "look", "the ranks of the current run", "Read"),
    Verb("events", "look", "the events of the cluster and of the runs", "Read"),
    Verb("alerts", "alerts", "problems of the run, and what to do", "Read"),
    Verb("logs", "logs", "the log of a job, a pod or a rank", "Read"),
    Verb("watch", "watch", "the telemetry as it comes, one sample a line", "Read"),
    Verb("record", "record", "record runs without a screen, until their end", "Read"),
    Verb("recordings", "recordings", "list or delete recorded runs", "Read"),
    Verb("replay", "replay", "a recorded run on the same screens, at any speed", "Read"),
    Verb("export", "export", "a recorded run as Parquet, CSV or JSON lines", "Read"),
    Verb("report", "report", "a recorded run as HTML, Markdown or JSON", "Read"),
    Verb("trials", "trials", "the trials of Ray Tune, the best first", "Read"),
    Verb("stack", "stack", "the stack of a rank's process", "Read"),
    Verb("profile", "profile", "a flame graph of a rank's process", "Read"),
    Verb("timeline", "timeline", "tasks and run as a trace for Perfetto, in a file", "Read"),
    Verb("describe", "inspect", "an object and its events, as readable text", "Read"),
    Verb("yaml", "inspect", "an object as Kubernetes has it", "Read"),
    Verb("scale", "scale", "change a worker group's number of pods", "Change"),
    Verb("launch", "launch", "submit a bundled job, or any command", "Change"),
    Verb("stop", "job", "stop a job", "Change"),
    Verb("delete", "job", "delete a job that is over", "Change"),
    Verb("resume", "job", "submit a job again, from its last checkpoint", "Change"),
    Verb("kill", "kill", "kill a pod or a rank's pod, and measure the recovery", "Change"),
    Verb("drill", "drill", "inject a fault and measure the recovery", "Change"),
    Verb("exec", "execute", "run a command in a pod: a shell on a terminal", "Change"),
    Verb("suspend", "suspend", "delete all pods of a cluster, and keep the cluster", "Change"),
    Verb("unsuspend", "suspend", "create the pods of a suspended cluster again", "Change"),
    Verb("cordon", "cordon", "keep new pods off a Kubernetes node", "Change"),
    Verb("uncordon", "cordon", "allow new pods on it again", "Change"),
    Verb("config", "config", "the settings in effect, and where each is from", "About"),
    Verb("keys", "keys", "the keys of the screen", "About"),
    Verb("themes", "themes", "the themes of the screen", "About"),
)
BY_NAME = {verb.name: verb for verb in VERBS}
