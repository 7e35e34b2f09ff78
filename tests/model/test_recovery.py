from __future__ import annotations

import pytest

from cockpit.model.error import UsageError
from cockpit.model.recovery import DEFAULT, FAST, PROFILES, profile


def test_unknown_profile_is_refused_with_the_known_names() -> None:
    assert [profile(name) for name in PROFILES] == [DEFAULT, FAST]
    with pytest.raises(UsageError, match="'quick'") as caught:
        profile("quick")
    assert caught.value.why == "There are default, fast."


def test_a_drain_is_short_but_never_none_so_that_a_restart_is_charged_to_the_preemptions() -> None:
    drain_s = float(FAST.pod_env["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
    assert drain_s > 0
    assert float(FAST.job_env["RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S"]) < drain_s


def test_a_raylet_that_is_only_slow_has_as_many_chances_as_by_default() -> None:
    assert "RAY_health_check_failure_threshold" not in FAST.pod_env


def test_every_setting_is_one_that_ray_reads() -> None:
    names = {*FAST.pod_env, *FAST.job_env, *DEFAULT.pod_env, *DEFAULT.job_env}
    assert all(name.startswith(("RAY_", "TORCH_PROCESS_GROUP_")) for name in names)
