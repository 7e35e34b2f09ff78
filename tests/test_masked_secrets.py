"""A secret on a job's command line stays out of the audit log, Events, ps, listings and errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from cockpit.actions import audit
from cockpit.actions.jobs import JobActions
from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.resources import objects
from cockpit.backends.kuberay.resources.event import announce
from cockpit.backends.kuberay.resources.safe_yaml import as_yaml
from cockpit.backends.protocol import Change
from cockpit.cli import main as cli
from cockpit.cli.options import connect
from cockpit.launch import submission
from cockpit.launch.environment import JobEnvironment
from cockpit.launch.submission import script_spec
from cockpit.model.cluster import ClusterRef, DashboardRoute, WorkerGroup
from cockpit.model.error import CockpitError
from cockpit.model.event import Event, GroupsListed, Notice
from cockpit.model.secret import masked_command
from cockpit.sources.ray import answers
from cockpit.sources.ray.dashboard import Dashboard, Submission
from cockpit.sources.ray.http import AnswerError
from tests.simulated_backend import ScriptedBackend

SECRET = "s3same-0pen"
ARGV = ("python", "train.py", "--token", SECRET, "--lr", "0.1")
COMMAND = f"python train.py --token {SECRET} --lr 0.1"
SHOWN = "python train.py --token *** --lr 0.1"
GROUPS = GroupsListed(at_s=0.0, source="backend", groups=(WorkerGroup("cpu", 1, 1, 0, 4),))
"""A dry run waits for them."""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (ARGV, SHOWN),
        (("t", "--api-key", "a 'b c", "x"), "t --api-key *** x"),
        (("t", f"--password={SECRET}"), "t '--password=***'"),
        (("env", f"HF_TOKEN={SECRET}", "t"), "env 'HF_TOKEN=***' t"),
        (("t", "--token", "--lr", "1"), "t --token --lr 1"),
        (("t", "--max-tokens", "4096"), "t --max-tokens 4096"),
        (("t", f"--password=a, b;{SECRET}"), "t '--password=***'"),
    ],
)
def test_command_is_shown_without_probable_secrets(argv: tuple[str, ...], shown: str) -> None:
    assert script_spec(argv, Path()).shown_command == shown


async def test_audit_log_and_recording_have_the_launch_without_the_secret() -> None:
    told: list[Event] = []
    actions = JobActions(ScriptedBackend(), emit=told.append)
    with pytest.raises(CockpitError):
        await actions.submit(script_spec(ARGV, Path.cwd()))
    audit.record("launch", ClusterRef("local", "x"), "j", after=COMMAND, error=f"no: {COMMAND}")
    text = audit.path().read_text()
    assert SECRET not in text
    assert text.count(SHOWN) == 3
    [notice] = [event for event in told if isinstance(event, Notice)]
    assert SECRET not in notice.message
    assert SHOWN in notice.message


class Recording(KubeClient):
    """Keeps what would be created."""

    def __init__(self) -> None:
        super().__init__(Credentials(KubeContext("c", "n", "http://127.0.0.1:9", "u", {}, {})))
        self.made: list[Any] = []

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        return {"metadata": {"uid": "1"}}

    async def create(self, path: str, body: Any) -> Any:
        self.made.append(body)
        return body


async def test_event_on_the_object_has_the_launch_without_the_secret() -> None:
    client = Recording()
    change = Change("launch", "RayJob", "j", after=COMMAND)
    await announce(client, ClusterRef("kuberay", "demo", "ml", "c"), change, "jane")
    [event] = client.made
    assert SECRET not in str(event)
    assert SHOWN in event["message"]


METADATA = {"owner": "jane", "wandb_api_key": SECRET, "note": f"run with --password={SECRET}"}


def test_listed_job_has_no_secret_in_its_command_its_metadata_or_its_message() -> None:
    message = f"failed\nCommand: {COMMAND}\nlast line"
    job = answers.job(
        {"submission_id": "j", "status": "FAILED", "entrypoint": COMMAND}
        | {"metadata": METADATA, "message": message}
    )
    resource = objects.ray_job(
        {
            "metadata": {"name": "j"},
            "spec": {"entrypoint": COMMAND, "metadata": METADATA},
            "status": {"message": message, "jobDeploymentStatus": "Failed"},
        }
    )
    for each in (job, resource):
        assert SECRET not in str(each)
        assert each.entrypoint == SHOWN
        assert each.metadata["owner"] == "jane"
        assert each.message.endswith("last line")


def test_manifest_is_shown_without_the_secrets_of_its_command_lines() -> None:
    words = ["--token", SECRET, "--lr", "0.1"]
    raw = {"kind": "RayJob", "spec": {"entrypoint": COMMAND, "containers": [{"args": words}]}}
    text = as_yaml(raw)
    assert SECRET not in text
    assert SHOWN in text
    assert words[1] == SECRET  # the object itself is not changed


@pytest.mark.parametrize(
    "text",
    [
        f'env_vars: {{"HF_TOKEN": "{SECRET}"}}',
        f'{{"env_vars": {{"DB_PASSWORD": "a, {SECRET}"}}}}',
        f"env_vars:\n  HF_TOKEN: |\n    a\n    {SECRET}\n  LEFT: '1'",
        f"env_vars:\n  HF_TOKEN: a long\n    {SECRET}\n",
        f"pip: ['git+https://{SECRET}@host/repo']",
    ],
)
def test_manifest_is_shown_without_the_secrets_of_its_runtime_environment(text: str) -> None:
    raw = {"kind": "RayJob", "spec": {"runtimeEnvYAML": text, "metadata": METADATA}}
    shown = as_yaml(raw)
    assert SECRET not in shown
    assert "***" in shown
    assert "owner: jane" in shown
    assert ("LEFT" in shown) == ("LEFT" in text)


def test_plan_masks_the_secret_and_reports_who_could_read_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connect, "backend", lambda args, **how: ScriptedBackend((GROUPS,)))
    for flags in ((), ("--via", "rayjob"), ("--via", "rayjob", "--own-cluster")):
        assert cli.main(["launch", "--dry-run", *flags, "--", *ARGV]) == 0
        said = capsys.readouterr().err
        assert SECRET not in said
        assert SHOWN in said
        assert "looks like a secret" in said
    assert cli.main(["launch", "--dry-run", "--", "python", "train.py"]) == 0
    assert "looks like a secret" not in capsys.readouterr().err


@pytest.mark.parametrize("via", ["job", "rayjob"])
def test_plan_of_a_launch_has_no_secret_of_its_environment(
    via: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connect, "backend", lambda args, **how: ScriptedBackend((GROUPS,)))
    monkeypatch.setenv("HF_TOKEN", SECRET)
    (tmp_path / "job.env").write_text(f"WANDB_API_KEY={SECRET}\n")
    (tmp_path / "env.json").write_text(f'{{"env_vars": {{"DB_PASSWORD": "{SECRET}"}}}}')
    flags = ["--env", "HF_TOKEN", "--env-file", "job.env", "--runtime-env", "env.json"]
    flags += ["--pip", f"git+https://{SECRET}@host/repo.git"]
    assert cli.main(["launch", "--dry-run", "--via", via, *flags, "--", "python", "train.py"]) == 0
    said = capsys.readouterr().err
    assert SECRET not in said
    assert "Possible secrets: DB_PASSWORD, WANDB_API_KEY, HF_TOKEN." in said
    assert "git+https://***@host/repo.git" in said


async def test_audit_log_and_recording_have_no_secret_of_a_launch_s_environment() -> None:
    told: list[Event] = []
    wants = JobEnvironment(
        env_vars={"HF_TOKEN": SECRET}, others={"pip": [f"git+https://{SECRET}@host/repo.git"]}
    )
    with pytest.raises(CockpitError):
        await JobActions(ScriptedBackend(), emit=told.append).submit(
            script_spec(("python", "train.py"), Path.cwd(), environment=wants)
        )
    assert SECRET not in audit.path().read_text()
    assert SECRET not in str(told)


async def test_error_of_ray_that_repeats_the_environment_is_shown_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(self: Dashboard, given: Submission) -> str:
        raise AnswerError("no", f"bad runtime_env: {dict(given.env_vars)!r}", status=500)

    monkeypatch.setattr(Dashboard, "submit", refuse)
    monkeypatch.setattr(Dashboard, "has_package", AsyncMock(return_value=True))
    monkeypatch.setattr(Dashboard, "nodes", AsyncMock(return_value=()))
    monkeypatch.setattr(Dashboard, "jobs", AsyncMock(return_value=()))
    wants = JobEnvironment(env_vars={"HF_TOKEN": f"a, '{SECRET}"})
    spec = submission.bundled_spec("ddp", environment=wants)
    with pytest.raises(AnswerError) as raised:
        await submission.launch(Dashboard(DashboardRoute("http://127.0.0.1:9")), spec)
    assert "bad runtime_env" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_flag_that_is_not_understood_is_not_quoted_with_its_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["status", "--hf-token", SECRET]) == 2
    said = capsys.readouterr().err
    assert "--hf-token" in said
    assert SECRET not in said


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="Linux only")
def test_ps_shows_no_secret_of_cockpits_own_arguments() -> None:
    script = (
        "import atexit, sys\n"
        "from pathlib import Path\n"
        "from cockpit.cli.main import main\n"
        "def show() -> None:\n"
        "    print(Path('/proc/self/cmdline').read_bytes().replace(b'\\0', b' ').decode())\n"
        "    print(sys.argv)\n"
        "atexit.register(show)\n"
        "sys.exit(main())\n"
    )
    argv = ["no-such-verb", "--token", SECRET, f"--password={SECRET}", f"http://me:{SECRET}@h"]
    done = subprocess.run(
        [sys.executable, "-c", script, *argv, "--lr", "0.1"], capture_output=True, text=True
    )
    cmdline, kept = done.stdout.splitlines()[-2:]
    assert done.returncode == 2
    assert SECRET not in cmdline + done.stderr
    assert cmdline.rstrip().endswith("--lr 0.1")
    assert "--password=***" in cmdline
    assert SECRET in kept  # the input of the verb
    assert masked_command(["--token", SECRET]) == ["--token", "***"]
