"""A line of the flags of `cockpit launch`, as the launch dialog takes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.launch.flags import of_line, split
from cockpit.launch.rayjob import RayJobOptions
from cockpit.model.error import UsageError


def test_flags_set_the_environment_the_driver_and_the_recovery_of_a_job() -> None:
    line = "--env A='1 2' --pip einops --driver-cpus 2 --driver-memory 1Gi --recovery default"
    made = of_line(line, "ddp", {"epochs": "3"}, "job")
    wants = made.spec.environment
    assert wants.env_vars == {"A": "1 2"}
    assert wants.others == {"pip": ["einops"]}
    assert (wants.driver.cpus, wants.driver.memory_bytes) == (2.0, 1 << 30)
    assert made.spec.recovery.name == "default"
    assert "--epochs=3" in made.spec.entrypoint
    assert made.options is None
    plain = of_line("", "ddp", {}, "job")
    assert plain.spec.environment.env_vars == {}
    assert plain.options is None


def test_own_cluster_is_a_rayjob_with_its_replicas_image_and_queue() -> None:
    line = "--own-cluster --replicas gpu=2 --image a:1 --queue team --ttl 5 --retries 1"
    made = of_line(line, "ddp", {}, "job")
    expected = RayJobOptions(True, {"gpu": 2}, "a:1", 5, None, 1, "team")
    assert made.options == expected
    assert of_line("--deadline 9", "ddp", {}, "rayjob").options == RayJobOptions(deadline_s=9)


def test_command_after_dashes_is_run_in_a_copy_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = of_line("--env A=1 -- python train.py --lr '0.1 0.2'", "", {}, "job")
    assert made.spec.entrypoint == ("python", "train.py", "--lr", "0.1 0.2")
    assert made.spec.directory == tmp_path
    assert made.spec.environment.env_vars == {"A": "1"}
    assert split("-- a -- b") == ([], ("a", "--", "b"))


@pytest.mark.parametrize(
    ("line", "name", "why"),
    [
        ("--env 'A=1", "ddp", "The flags cannot be read: No closing quotation"),
        ("--nothing", "ddp", "unrecognized arguments: --nothing"),
        ("--driver-cpus many", "ddp", "argument --driver-cpus: invalid float value"),
        ("-- python x.py", "ddp", "ddp and a command after -- cannot be launched together"),
        ("--replicas gpu=2", "ddp", "are for a RayJob"),
        ("--pip a --uv b", "ddp", "--pip and --uv cannot be combined"),
        ("--env A=1", "", "There is no command to launch"),
    ],
)
def test_line_that_is_wrong_is_an_error_with_the_reason(line: str, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        of_line(line, name, {}, "job")
