"""Alert rules for Prometheus, with names, severities, thresholds and delays of cockpit's alerts.

They raise while no cockpit runs, for the alerts that can be computed from the exported metrics
(docs/monitoring.md lists the others). Where a detector uses a robust statistic over the records of
a run, the rule uses the nearest function of PromQL over scraped values.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from cockpit.insight.detectors.gpus import FATAL_XIDS
from cockpit.insight.detectors.hysteresis import RAISE_AFTER_S
from cockpit.insight.detectors.memory import DISK, MEMORY, OBJECT_STORE
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.bottleneck import MOSTLY_PERCENT
from cockpit.model.alert import Severity

PREFIX = "ray_cockpit_train_"
PLACE = "namespace, ray_io_cluster"
"""Labels of the cluster, where the scrape adds them."""
RUN = f"run, name, {PLACE}"
RANK = f"{RUN}, rank"
NODE = f"ip, {PLACE}"
ONE = 'rank!~"min|mean|max"'
"""The ranks themselves: a large world has series of all ranks instead."""


class Recording(Struct, frozen=True):
    """A recording rule."""

    record: str
    expr: str


class AlertRule(Struct, frozen=True):
    kind: str
    severity: Severity
    expr: str
    summary: str
    todo: str
    for_s: float


def recordings() -> Iterator[Recording]:
    """The numbers of runs and ranks that several alerts use."""
    for record, metric in (
        ("cockpit:step_timestamp_seconds", "step_timestamp_seconds"),
        ("cockpit:step_time_seconds", "step_time_seconds"),
        ("cockpit:data_wait_seconds", "data_wait_seconds"),
        ("cockpit:communication_seconds", "communication_seconds"),
    ):
        yield Recording(record, f"max by ({RANK}) ({PREFIX}{metric})")
    yield Recording(
        "cockpit:last_step_timestamp_seconds", f"max by ({RUN}) (cockpit:step_timestamp_seconds)"
    )
    yield Recording(
        "cockpit:step_time_seconds:median",
        f'quantile by ({RUN}) (0.5, cockpit:step_time_seconds{{rank!~"min|max"}})',
    )
    yield Recording(
        "cockpit:samples_per_second",
        f"sum by ({RUN}) (max by ({RANK}) ({PREFIX}samples_per_second{{{ONE}}})) or "
        f'max by ({RUN}) ({PREFIX}samples_per_second{{rank="mean"}}) * '
        f"max by ({RUN}) ({PREFIX}world_size)",
    )
    sections = " + ".join(
        f"max by ({RANK}) ({PREFIX}{part}_seconds)" for part in ("forward", "backward", "optimizer")
    )
    rest = f"clamp_min(cockpit:step_time_seconds - cockpit:data_wait_seconds - ({sections}), 0)"
    yield Recording(
        "cockpit:exposed_communication_seconds",
        f"({rest} < cockpit:communication_seconds) or cockpit:communication_seconds",
    )
    yield Recording(
        "cockpit:own_work_seconds",
        f"quantile_over_time(0.5, cockpit:step_time_seconds{{{ONE}}}[1m]) - "
        f"quantile_over_time(0.5, cockpit:communication_seconds{{{ONE}}}[1m])",
    )
    yield Recording(
        "cockpit:own_work_seconds:median", f"quantile by ({RUN}) (0.5, cockpit:own_work_seconds)"
    )
    yield Recording(
        "cockpit:own_work_seconds:sigma",
        f"1.4826 * quantile by ({RUN}) (0.5, abs(cockpit:own_work_seconds - "
        f"on ({RUN}) group_left () cockpit:own_work_seconds:median))",
    )
    yield Recording("cockpit:running", f"max by ({RUN}) ({PREFIX}running) == 1")
    yield Recording(
        "cockpit:attempt_age_seconds",
        f"time() - max by ({RUN}) ({PREFIX}attempt_timestamp_seconds) and cockpit:running",
    )
    yield Recording(
        "cockpit:stepping",
        "cockpit:attempt_age_seconds and cockpit:last_step_timestamp_seconds >= "
        f"max by ({RUN}) ({PREFIX}attempt_timestamp_seconds)",
    )


def alert_rules(limits: Thresholds) -> Iterator[AlertRule]:
    """The alerts, in the order of docs/diagnosis.md."""
    on_run = f"and on ({RUN})"
    loss = f"max by ({RANK}) ({PREFIX}loss)"
    yield _rule(
        "loss-nan",
        Severity.CRITICAL,
        f"{loss} != {loss} or abs({loss}) == Inf",
        "The loss of rank {{ $labels.rank }} of run {{ $labels.name }} is not finite",
        "Stop the run; look at the gradient norm and the data before that step",
        limits,
    )
    of_rank = f"cockpit:step_time_seconds{{{ONE}}}"
    yield _rule(
        "silent-rank",
        Severity.WARNING,
        f"(cockpit:last_step_timestamp_seconds - on ({RUN}) group_right () "
        f"cockpit:step_timestamp_seconds{{{ONE}}}) > on ({RANK}) "
        f"clamp_min({_number(limits.silent_steps)} * {of_rank}, {_number(limits.silent_s)}) "
        f"{on_run} cockpit:stepping",
        "Rank {{ $labels.rank }} of run {{ $labels.name }} has made no step for "
        "{{ $value | humanizeDuration }} while others have",
        "Check its log and its stack; its node may be down or swapping",
        limits,
    )
    yield _rule(
        "hung-run",
        Severity.CRITICAL,
        "time() - cockpit:last_step_timestamp_seconds > "
        f"clamp_min({_number(limits.hung_steps)} * cockpit:step_time_seconds:median, "
        f"{_number(limits.hung_s)}) {on_run} cockpit:stepping",
        "No rank of run {{ $labels.name }} has made a step for {{ $value | humanizeDuration }}",
        "Run cockpit hang: it names the ranks that block the others",
        limits,
    )
    yield _rule(
        "slow-start",
        Severity.WARNING,
        f"cockpit:attempt_age_seconds > {_number(limits.first_step_s)} "
        f"{on_run} cockpit:last_step_timestamp_seconds unless on ({RUN}) cockpit:stepping",
        "The ranks of run {{ $labels.name }} have been up for {{ $value | humanizeDuration }} "
        "without a "
        "step",
        "Look at the stack of rank 0: a restore, a compilation or a rendezvous",
        limits,
    )
    yield _rule(
        "stuck-start",
        Severity.WARNING,
        f"time() - (max by ({RUN}) ({PREFIX}starting_timestamp_seconds) > 0) > "
        f"{_number(limits.between_s)}",
        "The ranks of run {{ $labels.name }} are not up after {{ $value | humanizeDuration }}",
        "See what is free: cockpit exec HEAD -- ray status; and which job has the rest: "
        "cockpit jobs",
        limits,
    )
    report = f"max by ({RUN}) ({PREFIX}report_timestamp_seconds)"
    every = f"max by ({RUN}) ({PREFIX}report_interval_seconds)"
    yield _rule(
        "no-report",
        Severity.WARNING,
        f"time() - {report} > clamp_min({_number(limits.report_intervals)} * {every}, "
        f"{_number(limits.report_s)}) {on_run} cockpit:running "
        f"unless on ({RUN}) cockpit:last_step_timestamp_seconds",
        "Run {{ $labels.name }} has sent no report for {{ $value | humanizeDuration }}",
        "Look at the job's log and at the stacks of the ranks",
        limits,
    )
    above = f"(cockpit:own_work_seconds - on ({RUN}) group_left () cockpit:own_work_seconds:median)"
    share = _number(limits.straggler_percent / 100)
    yield _rule(
        "straggler",
        Severity.WARNING,
        f"{above} > on ({RUN}) group_left () "
        f"{_number(limits.straggler_sigmas)} * cockpit:own_work_seconds:sigma "
        f"and {above} > on ({RUN}) group_left () {share} * cockpit:step_time_seconds:median "
        f"{on_run} (cockpit:stepping > {_number(limits.warmup_s)})",
        "Rank {{ $labels.rank }} of run {{ $labels.name }} takes {{ $value | humanizeDuration }} "
        "longer for a step than the others",
        "Look at its stack and its node: throttling, a noisy neighbor, a slow disk, uneven input",
        limits,
    )
    for kind, part, least, doing, todo in (
        (
            "input-bound",
            "cockpit:data_wait_seconds",
            limits.input_percent,
            "waiting for data",
            "More data-loader workers, prefetching, or packed files on local storage",
        ),
        (
            "comm-bound",
            "cockpit:exposed_communication_seconds",
            limits.comm_percent,
            "in communication",
            "Larger batches per rank, gradient accumulation or compression, or fewer nodes",
        ),
    ):
        window = f'{{rank!~"min|max"}}[{prometheus_duration(limits.window_s)}]'
        percent = (
            f"100 * avg by ({RUN}) (clamp_max(avg_over_time({part}{window}) / "
            f"avg_over_time(cockpit:step_time_seconds{window}), 1))"
        )
        settled = f"{on_run} (cockpit:stepping > {_number(limits.warmup_s)})"
        summary = f"Run {{{{ $labels.name }}}} spends {{{{ $value | humanize }}}} % {doing}"
        most = max(MOSTLY_PERCENT, least)
        expr = f"{percent} >= {_number(least)} < {_number(most)} {settled}"
        yield _rule(kind, Severity.INFO, expr, summary, todo, limits)
        expr = f"{percent} >= {_number(most)} {settled}"
        yield _rule(kind, Severity.WARNING, expr, summary, todo, limits)
    now = f"avg_over_time(cockpit:samples_per_second[{prometheus_duration(limits.window_s)}])"
    past = (
        f"cockpit:samples_per_second[{prometheus_duration(limits.regression_past_s)}] "
        f"offset {prometheus_duration(limits.window_s)}"
    )
    settled_s = limits.warmup_s + limits.window_s + limits.regression_past_s
    yield _rule(
        "regression",
        Severity.WARNING,
        f"{now} < quantile_over_time(0.5, {past}) - {_number(limits.regression_sigmas)} * "
        f"stddev_over_time({past}) and {now} < "
        f"{_number(1 - limits.regression_percent / 100)} * quantile_over_time(0.5, {past}) "
        f"{on_run} (cockpit:stepping > {_number(settled_s)})",
        "Run {{ $labels.name }} makes only {{ $value | humanize }} samples/s, less than before",
        "See which share of the step grew, and whether a rank or its node slowed down",
        limits,
    )
    yield _rule(
        "idle-gpu",
        Severity.WARNING,
        f"max_over_time({PREFIX}gpu_utilization_percent{{{ONE}}}"
        f"[{prometheus_duration(limits.idle_gpu_s)}]) < {_number(limits.idle_gpu_percent)} "
        f"{on_run} "
        f"(cockpit:stepping > {_number(limits.warmup_s + limits.idle_gpu_s)})",
        "The GPU of rank {{ $labels.rank }} of run {{ $labels.name }} is idle",
        "Check that the model is on the GPU that Ray assigned to the rank",
        limits,
    )
    fatal = " or ".join(f"DCGM_FI_DEV_XID_ERRORS == {xid}" for xid in sorted(FATAL_XIDS))
    yield _rule(
        "gpu-xid",
        Severity.CRITICAL,
        fatal,
        "The driver reports Xid {{ $value }} on GPU {{ $labels.gpu }} of "
        "{{ $labels.Hostname }}{{ $labels.hostname }}",
        "Cordon the node and move the run",
        limits,
    )
    yield _rule(
        "gpu-ecc",
        Severity.WARNING,
        f"max by ({RANK}) ({PREFIX}gpu_ecc_errors{{{ONE}}}) > 0",
        "The GPU of rank {{ $labels.rank }} of run {{ $labels.name }} has {{ $value }} uncorrected "
        "memory errors",
        "Cordon the node, reset the GPU, and watch its row remapping",
        limits,
    )
    memory, total = f"{PREFIX}gpu_memory_bytes", f"{PREFIX}gpu_memory_total_bytes"
    window = f"{{{ONE}}}[{prometheus_duration(limits.memory_window_s)}]"
    growth = _number(limits.memory_growth_percent / 100)
    settled = f"(cockpit:stepping > {_number(limits.warmup_s + limits.memory_window_s)})"
    yield _rule(
        "gpu-memory",
        Severity.WARNING,
        f"predict_linear({memory}{window}, {_number(limits.memory_horizon_s)}) >= {total} and "
        f"delta({memory}{window}) >= {growth} * {total} {on_run} {settled}",
        "The GPU memory of rank {{ $labels.rank }} of run {{ $labels.name }} will be full within "
        f"{prometheus_duration(limits.memory_horizon_s)}",
        "Check what is kept from step to step (losses, graphs, caches); save a checkpoint soon",
        limits,
    )
    yield _rule(
        "node-memory",
        Severity.CRITICAL,
        f"100 * max by ({NODE}) (ray_node_mem_used) / max by ({NODE}) (ray_node_mem_total) >= "
        f"{_number(limits.memory_percent)}",
        "Node {{ $labels.ip }} uses {{ $value | humanize }} % of its memory",
        MEMORY.todo,
        limits,
    )
    yield _rule(
        "node-disk",
        Severity.WARNING,
        f"max by ({NODE}) (ray_node_disk_utilization_percentage) >= {_number(limits.disk_percent)}",
        "Node {{ $labels.ip }} uses {{ $value | humanize }} % of its disk",
        DISK.todo,
        limits,
    )
    used = f"max by ({PLACE}, instance) (ray_object_store_used_memory)"
    free = f"max by ({PLACE}, instance) (ray_object_store_available_memory)"
    yield _rule(
        "object-store",
        Severity.WARNING,
        f"100 * {used} / ({used} + {free}) >= {_number(limits.object_store_percent)}",
        "Node {{ $labels.instance }} uses {{ $value | humanize }} % of its object store",
        OBJECT_STORE.todo,
        limits,
    )
    kills = "ray_memory_manager_worker_eviction_total"
    kept = prometheus_duration(limits.memory_kill_s)
    yield _rule(
        "out-of-memory",
        Severity.WARNING,
        f"sum by ({PLACE}, instance) "
        f"({kills} - ({kills} offset {kept}) or {kills} unless {kills} offset {kept}) > 0",
        "Ray's memory monitor killed {{ $value }} processes on {{ $labels.instance }}",
        "Give the node more memory, or start fewer processes on it; for the cause, run: cockpit "
        "why",
        limits,
    )
    saved = f"max by ({RUN}) ({PREFIX}checkpoint_timestamp_seconds)"
    saves = f"max by ({RUN}) ({PREFIX}checkpoint_interval_seconds)"
    age = _number(limits.checkpoint_age_s)
    yield _rule(
        "old-checkpoint",
        Severity.WARNING,
        f"time() - {saved} > {age} unless on ({RUN}) time() - {saved} <= "
        f"{_number(limits.checkpoint_intervals)} * {saves} {on_run} (cockpit:stepping > {age})",
        "The newest checkpoint of run {{ $labels.name }} is {{ $value | humanizeDuration }} old",
        "Save more often, and check the log for failed saves",
        limits,
    )
    yield _rule(
        "no-checkpoint",
        Severity.WARNING,
        f"cockpit:stepping > {age} unless on ({RUN}) {saved}",
        "Run {{ $labels.name }} has no checkpoint after {{ $value | humanizeDuration }}",
        "Save more often, and check the log for failed saves",
        limits,
    )


def _rule(
    kind: str, severity: Severity, expr: str, summary: str, todo: str, limits: Thresholds
) -> AlertRule:
    for_s = RAISE_AFTER_S.get(kind, limits.raise_after_s)
    return AlertRule(kind, severity, expr, summary, todo, for_s)


def _number(value: float) -> str:
    return f"{value:.10g}"


def prometheus_duration(seconds: float) -> str:
    """As Prometheus writes one, in milliseconds where it is no whole number of seconds."""
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:.0f}ms"
