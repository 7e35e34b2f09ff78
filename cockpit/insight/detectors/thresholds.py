"""When a number becomes a finding: every threshold of every diagnosis, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cockpit.model.decoding.settings_table import checked, types_of


class Thresholds(Struct, frozen=True):
    """The configuration's `[alerts]` table overrides any of them by name.

    `_s` are seconds, `_percent` are parts of a hundred, `_sigmas` are robust standard deviations
    (1.4826 MAD), the rest are plain factors or counts.
    """

    stale_s: float = 10.0
    """A source without data for this long is stale: its alerts are kept as they are."""
    warmup_s: float = 60.0
    """After an attempt's first step its speed and memory are not judged for this long."""
    window_s: float = 120.0
    """How far back "now" reaches for shares and speeds."""

    input_percent: float = 25.0
    """Of the time spent waiting for data."""
    comm_percent: float = 40.0
    """Of the time spent in communication that nothing hides."""
    checkpoint_percent: float = 10.0
    """Of the time blocked on checkpoints."""

    straggler_sigmas: float = 5.0
    """A rank is one when its own work a step is so far above the other ranks', and also …"""
    straggler_percent: float = 20.0
    """… this percentage of a step."""
    slowed_percent: float = 30.0
    """A rank's own work a step against its own past in this attempt, beyond what all ranks did."""

    regression_sigmas: float = 3.0
    """Throughput is lower than before when it is so far below, and also …"""
    regression_percent: float = 10.0
    """… this percentage."""
    regression_past_s: float = 1_800.0
    """How far back this attempt's own past reaches."""
    regression_runs: int = 3
    """Recorded runs that it takes to compare with."""
    scaling_percent: float = 70.0
    """A scaling efficiency below this is reported."""
    goodput_percent: float = 80.0
    """Goodput below this is reported."""
    goodput_after_s: float = 1_800.0
    """Of a run that is at least so old."""

    spike_sigmas: float = 8.0
    """A loss so far above the recent ones, for three records, is a spike when it also …"""
    spike_percent: float = 5.0
    """… gave back this part of all that it had fallen since the beginning."""
    divergence_percent: float = 50.0
    """A loss that gave back this part of all that it had fallen, and stays there, diverges."""
    divergence_s: float = 60.0
    """How long it must stay there."""
    plateau_s: float = 3_600.0
    """How far back a plateau reaches."""
    plateau_percent: float = 0.5
    """A loss that fell by less than this in that time is on a plateau."""
    frozen_records: int = 45
    """Consecutive records with exactly the same loss, while steps continue."""

    silent_s: float = 20.0
    """A rank without data for this long, while another has data, and also …"""
    silent_steps: float = 5.0
    """… this number of its steps before."""
    hung_s: float = 120.0
    """No rank made a step for the longest of this, twice the longest pause before, and …"""
    hung_steps: float = 20.0
    """… this number of median steps."""
    first_step_s: float = 600.0
    """An attempt whose ranks have been up for this long without a step."""
    between_s: float = 120.0
    """A run without ranks that tries to start them, and has no lack of resources to wait for."""
    failed_job_s: float = 1_800.0
    """A failed job is reported for this long, unless it was launched again."""
    memory_kill_s: float = 1_800.0
    """A process that Ray's memory monitor killed is shown for this long."""
    report_s: float = 120.0
    """A run that only reports has not for the longest of this, twice its longest pause, and …"""
    report_intervals: float = 6.0
    """… this number of usual intervals."""

    memory_horizon_s: float = 3_600.0
    """Growth that reaches the limit within this time is reported."""
    memory_window_s: float = 600.0
    """The time range in which growth is measured."""
    memory_growth_percent: float = 1.0
    """Of the limit, in the window: less is noise."""
    memory_percent: float = 92.0
    """Of a node's memory in use. Ray kills workers at 95 (RAY_memory_usage_threshold)."""
    disk_percent: float = 90.0
    """Of a node's disk in use. From 95 Ray spills no objects (RAY_local_fs_capacity_threshold)."""
    object_store_percent: float = 90.0
    """Of its object store in use. Ray spills objects from 80 (RAY_object_spilling_threshold)."""

    idle_gpu_percent: float = 5.0
    """A GPU of the run below this use is idle …"""
    idle_gpu_s: float = 120.0
    """… when it is so in every record of this time."""

    checkpoint_age_s: float = 1_800.0
    """The newest checkpoint is older than the longer of this and …"""
    checkpoint_intervals: float = 3.0
    """… this number of usual intervals."""

    price_per_gpu_hour: float = 0.0
    """In any currency; 0 hides costs."""

    raise_after_s: float = 10.0
    """A finding that lasts this long becomes an alert, unless its kind has its own time."""
    clear_after_s: float = 20.0
    """An alert without a finding for this long is cleared."""
    fold_ranks: int = 8
    """More ranks than this with the same trouble are one finding."""


def parse(raw: Mapping[str, Any]) -> Thresholds:
    """Read the configuration's `[alerts]` table. Raises UsageError for unknown keys."""
    todo = "docs/diagnosis.md describes each of them."
    return Thresholds(**checked(raw, types_of(Thresholds), "alerts.", todo))
