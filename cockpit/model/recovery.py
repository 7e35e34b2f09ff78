"""How fast a run comes back: the settings of Ray that decide it, as profiles to choose from.

Nothing here is a switch of ours: each is a variable that Ray reads (`ray_config_def.h`,
`ray_constants.py` and `train/v2/_internal/constants.py` of Ray 2.60). What each trades is told in
docs/recovery.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from cockpit.model.error import UsageError


class RecoveryProfile(Struct, frozen=True):
    name: str
    pod_env: Mapping[str, str] = field(default_factory=dict)
    """Of every pod, the head's first: GCS and raylets read it when they start."""
    job_env: Mapping[str, str] = field(default_factory=dict)
    """Of the job's driver, which hands it to Ray Train's controller."""
    callbacks: tuple[str, ...] = ()
    """Ray Train callbacks beside the telemetry's."""


DEFAULT = RecoveryProfile(
    "default",
    job_env={
        # A report of several ranks completes only at the controller's next poll, every 2 s by
        # Ray's default: measured, an epoch of 0.5 s took 2.02 s. It is not for recovery alone.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    },
)
"""Ray's own, but for the poll without which frequent checkpoints crawl."""

FAST = RecoveryProfile(
    "fast",
    pod_env={
        # A node is dead after 5 checks in a row that failed. Of a process that is gone each fails
        # at once, so the period alone decides: 2.5 s instead of 15. Still 5 of them, so that a
        # raylet that is only slow has as many chances as before.
        "RAY_health_check_period_ms": "500",
        # Of a machine that is gone nothing answers, and each check waits for its time-out:
        # 5 x (5 + 0.5) = 27.5 s instead of 65. A raylet must be mute for as long to pass for one.
        "RAY_health_check_timeout_ms": "5000",
        # SIGTERM, which every deletion of a pod begins with, makes a node drain; Train then waits
        # for the deadline although the pod is gone 2 s later by force, or its ranks could have
        # moved at once. 1 s is enough for the drain to be seen, so that the restart is charged to
        # the preemptions. 0 would be no drain at all, and a charge to max_failures.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "1",
        "RAY_GRACEFUL_SHUTDOWN_POLL_INTERVAL_S": "0.1",
    },
    job_env={
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        # A rank whose process does not answer for so long is taken for frozen; 600 by default.
        # It answers on a thread of its own while it computes; what silences it is a library that
        # holds the interpreter's lock for as long.
        "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "25",
        # Drains are asked for so often; 5 by default.
        "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.5",
        # Ranks that live are given so long to leave a process group that has lost one; 30 by
        # default, all of which a rank uses that hangs in a collective. They are killed after it.
        "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "2",
    },
    callbacks=("training.recovery.callback.RecoveryCallback",),
)
"""For runs that checkpoint often and would rather restart once too often than wait."""

PROFILES: Mapping[str, RecoveryProfile] = {profile.name: profile for profile in (DEFAULT, FAST)}


def profile(name: str) -> RecoveryProfile:
    """Raises UsageError for a name that is none."""
    try:
        return PROFILES[name]
    except KeyError:
        raise UsageError(
            f"There is no recovery profile {name!r}.", f"There are {', '.join(PROFILES)}."
        ) from None
