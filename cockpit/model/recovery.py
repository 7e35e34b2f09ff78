"""Recovery profiles: the settings of Ray that determine how fast a run recovers.

All of them are variables that Ray reads (`ray_config_def.h`, `ray_constants.py` and
`train/v2/_internal/constants.py` of Ray 2.60). docs/recovery.md describes the trade-offs.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from cockpit.model.error import UsageError


class RecoveryProfile(Struct, frozen=True):
    name: str
    pod_env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every pod, above all the head: GCS and raylets read them when they start."""
    job_env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the job's driver, which passes them to Ray Train's controller."""
    callbacks: tuple[str, ...] = ()
    """Ray Train callbacks in addition to the telemetry's."""


DEFAULT = RecoveryProfile(
    "default",
    job_env={
        # A report of several ranks completes only at the controller's next poll, every 2 s by
        # default: measured, an epoch of 0.5 s took 2.02 s. This matters for more than recovery.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    },
)
"""Ray's defaults, except for the poll interval, which frequent checkpoints need."""

FAST = RecoveryProfile(
    "fast",
    pod_env={
        # A node is dead after 5 failed checks in a row. If only its process died, each check fails
        # at once, so the period alone decides: 1.25 s instead of 15. The number stays 5, so that a
        # slow raylet has as many chances as before.
        "RAY_health_check_period_ms": "250",
        # If the host is down, nothing answers, and each check waits for its timeout: 5 x (5 + 0.25)
        # = 26 s instead of 65. A raylet must give no answer for as long to be considered dead.
        "RAY_health_check_timeout_ms": "5000",
        # Every deletion of a pod begins with SIGTERM, which makes a node drain. Train then waits
        # for the deadline, although the pod is deleted 2 s later by force, or its ranks could have
        # moved at once. 1 s is enough for the drain to be seen, so that the restart is charged to
        # the preemptions. 0 would mean no drain, and a charge to max_failures.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "1",
        "RAY_GRACEFUL_SHUTDOWN_POLL_INTERVAL_S": "0.1",
    },
    job_env={
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        # A rank whose process does not answer for this long is considered frozen; 600 by default. A
        # separate thread answers while the rank computes, unless a library holds the interpreter's
        # lock for as long. A false alarm costs a restart of a few seconds.
        "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "12",
        # The interval of polls for drains; 5 by default.
        "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.5",
        # The time that live ranks have to leave a process group that lost a rank, before they are
        # killed; 30 by default. A rank that hangs in a collective uses all of it.
        "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "2",
    },
    callbacks=("training.recovery.callback.RecoveryCallback",),
)
"""For runs that checkpoint often and prefer an unnecessary restart to a long wait."""

PROFILES: Mapping[str, RecoveryProfile] = {profile.name: profile for profile in (DEFAULT, FAST)}


def profile(name: str) -> RecoveryProfile:
    """Raises UsageError for an unknown name."""
    try:
        return PROFILES[name]
    except KeyError:
        raise UsageError(
            f"There is no recovery profile {name!r}.", f"There are {', '.join(PROFILES)}."
        ) from None
