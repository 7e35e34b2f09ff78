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
    Verb("clusters", "clusters", "all clusters, over all contexts", "Look"),
    Verb("contexts", "contexts", "the contexts of the kubeconfig", "Look"),
    Verb("status", "look", "the state of the cluster, the run and the sources", "Look"),
    Verb("groups", "look", "the worker groups", "Look"),
    Verb("pods", "look", "the pods", "Look"),
    Verb("nodes", "look", "the Ray nodes", "Look"),
    Verb("machines", "look", "the Kubernetes nodes", "Look"),
    Verb("jobs", "look", "the submitted jobs", "Look"),
    Verb("runs", "look", "the training runs and their attempts", "Look"),
    Verb("ranks", "look", "the ranks of the current run", "Look"),
    Verb("events", "look", "the events of the cluster and of the runs", "Look"),
    Verb("alerts", "alerts", "problems of the run, and what to do", "Look"),
    Verb("logs", "logs", "the log of a job, a pod or a rank", "Look"),
    Verb("watch", "watch", "the telemetry as it comes, one sample a line", "Look"),
    Verb("record", "record", "record runs without a screen, until their end", "Look"),
    Verb("recordings", "recordings", "list or delete recorded runs", "Look"),
    Verb("replay", "replay", "a recorded run on the same screens, at any speed", "Look"),
    Verb("export", "export", "a recorded run as Parquet, CSV or JSON lines", "Look"),
    Verb("report", "report", "a recorded run as HTML, Markdown or JSON", "Look"),
    Verb("trials", "trials", "the trials of Ray Tune, the best first", "Look"),
    Verb("stack", "stack", "the stack of a rank's process", "Look"),
    Verb("profile", "profile", "a flame graph of a rank's process", "Look"),
    Verb("timeline", "timeline", "tasks and run as a trace for Perfetto, in a file", "Look"),
    Verb("describe", "inspect", "an object and its events, as readable text", "Look"),
    Verb("yaml", "inspect", "an object as Kubernetes has it", "Look"),
    Verb("scale", "scale", "change a worker group's number of pods", "Act"),
    Verb("launch", "launch", "submit a bundled job, or any command", "Act"),
    Verb("stop", "job", "stop a job", "Act"),
    Verb("delete", "job", "delete a job that is over", "Act"),
    Verb("resume", "job", "submit a job again, from its last checkpoint", "Act"),
    Verb("kill", "kill", "kill a pod or a rank's pod, and measure the recovery", "Act"),
    Verb("drill", "drill", "inject a fault and measure the recovery", "Act"),
    Verb("exec", "execute", "run a command in a pod: a shell on a terminal", "Act"),
    Verb("suspend", "suspend", "delete all pods of a cluster, and keep the cluster", "Act"),
    Verb("unsuspend", "suspend", "create the pods of a suspended cluster again", "Act"),
    Verb("cordon", "cordon", "keep new pods off a Kubernetes node", "Act"),
    Verb("uncordon", "cordon", "allow new pods on it again", "Act"),
    Verb("config", "config", "the settings in effect, and where each is from", "About"),
    Verb("keys", "keys", "the keys of the screen", "About"),
    Verb("themes", "themes", "the themes of the screen", "About"),
)
BY_NAME = {verb.name: verb for verb in VERBS}
