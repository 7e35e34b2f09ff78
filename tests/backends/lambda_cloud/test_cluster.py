"""`cockpit up --on lambda` to a cluster that runs, and `down`: the instances are sshd hosts."""

from __future__ import annotations

import getpass
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.actions import audit
from cockpit.backends.lambda_cloud import api, setup, spending, state
from cockpit.backends.lambda_cloud.api import Pace
from cockpit.backends.lambda_cloud.cluster import _address
from cockpit.cli.main import main
from cockpit.model.error import CockpitError
from tests.backends.lambda_cloud.conftest import described_in
from tests.lambda_cloud import KEY, LambdaCloud, Refused
from tests.local_cluster import separate_state
from tests.ssh_cluster import stand_in_python
from tests.sshd import hosts

WITHIN = ("--timeout", "90")
TEXT = """
cluster = "NAME"
[lambda]
region = "us-east-1"
ssh_key = "id"
user = "USER"
port = PORT
python = "PYTHON"

[spending]
confirm_above = 1
max_total = 100

[[instances]]
head = true
type = "cpu_4x_general"

[[instances]]
group = "gpu"
type = "cpu_4x_general"
count = 2

[replicas]
gpu = 1
"""


@pytest.fixture
def file(key: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, LambdaCloud]]:
    """The description of a cluster in an account whose instances are hosts on loopback."""
    folder = Path(tempfile.mkdtemp(prefix="cockpit-cloud-"))
    monkeypatch.setattr(api, "PACE", Pace(0.0, 0.0, 0.05))
    monkeypatch.setattr(setup, "AGAIN_S", 0.1)
    try:
        with separate_state(), LambdaCloud(folder).serve() as account:
            monkeypatch.setenv("LAMBDA_API_URL", account.url)
            monkeypatch.setenv("LAMBDA_API_KEY", KEY)
            text = TEXT.replace("USER", getpass.getuser()).replace("PORT", str(account.port))
            text = text.replace("PYTHON", stand_in_python(folder))
            name = folder.name.rpartition("-")[2].lower().replace("_", "x")
            path = described_in(folder, key, text.replace("NAME", name)).path
            yield path, account
            if state.load(name) is not None:  # a test that failed
                main(["down", "--on", "lambda", path, "--yes"])
    finally:
        shutil.rmtree(folder)


def test_guard_runs_while_instances_cost_money_also_if_up_or_down_fails(
    file: tuple[str, LambdaCloud], capfd: pytest.CaptureFixture[str]
) -> None:
    path, account = file
    text = Path(path).read_text()
    name = text.split('"')[1]
    Path(path).write_text(re.sub('python = ".*"', 'python = "/no/python"', text))
    assert main(["up", "--on", "lambda", path, *WITHIN]) == 1
    assert "3 of 3 hosts cannot be used" in capfd.readouterr().err
    assert (len(account.alive), spending.runs(name)) == (3, True)
    failed = Refused(500, "global/internal-error", "It failed.")
    account.faults.append(("POST instance-operations/terminate", failed))
    assert main(["down", "--on", "lambda", path, "--yes"]) == 3
    assert (len(account.alive), spending.runs(name)) == (3, True)
    assert main(["down", "--on", "lambda", path, "--yes"]) == 0
    assert (account.alive, spending.runs(name)) == ([], False)


def test_cluster_from_the_plan_to_its_end(
    file: tuple[str, LambdaCloud], capfd: pytest.CaptureFixture[str]
) -> None:
    path, account = file
    name = Path(path).read_text().split('"')[1]
    assert main(["plan", "--on", "lambda", path]) == 0
    said = capfd.readouterr().out
    assert "Launch gpu-2 in us-east-1: cpu_4x_general (no GPU, 2 CPUs, 16 GiB), $0.24" in said
    assert "Cost: $0.72 an hour for 3 instances." in said
    assert account.instances == {}

    # Below confirm_above, nothing is asked.
    assert main(["up", "--on", "lambda", path, *WITHIN]) == 0
    said = capfd.readouterr().err
    assert f"Cluster {name} is up, for $0.72 an hour." in said
    assert "Set up gpu-2." in said

    assert main(["pods", "--hosts", path, "-o", "json"]) == 0
    pods = json.loads(capfd.readouterr().out)
    assert sorted((pod["group"], pod["ready"]) for pod in pods) == [
        ("gpu", True),
        ("headgroup", True),
    ]
    assert main(["up", "--on", "lambda", path, *WITHIN]) == 0
    assert "Keep gpu-1 (active)" in capfd.readouterr().err
    assert len(account.instances) == 3

    for record in state.folder(name).iterdir():
        assert KEY not in record.read_text(), record

    # The spare vanishes: up replaces it, and the operator uses the new one.
    victim = next(one for one in account.alive if one["name"].endswith("gpu-2"))
    account.hosts.pop(victim["id"]).stop()
    victim["status"] = "vanished"
    assert main(["up", "--on", "lambda", path, *WITHIN]) == 0
    said = capfd.readouterr().err
    assert "The instance of gpu-2 is no longer there." in said
    assert "the operator is started again" in said
    assert main(["status", "--on", "lambda", path, "-o", "json"]) == 0
    status = json.loads(capfd.readouterr().out)
    assert [one["status"] for one in status["instances"]] == ["active"] * 3
    assert (status["dollars_per_hour"], status["guard"]) == (0.72, True)

    assert main(["plan", "--on", "lambda", path, "-o", "ray-up"]) == 0
    assert f"cluster_name: {name}" in capfd.readouterr().out

    assert main(["down", "--on", "lambda", path, "--yes"]) == 0
    said = capfd.readouterr().err
    assert "Deleted 3 instances, SSH key cockpit-" in said
    assert "no longer lists any resource of cluster" in said or "have nothing of cluster" in said
    assert (account.alive, account.keys, state.load(name)) == ([], [], None)
    assert main(["down", "--on", "lambda", path, "--yes"]) == 3
    for text in (said, audit.path().read_text()):
        assert KEY not in text


@pytest.mark.slow
def test_hybrid_cluster_keeps_its_record_until_the_head_on_premises_is_clean(
    file: tuple[str, LambdaCloud], capfd: pytest.CaptureFixture[str]
) -> None:
    path, account = file
    text = Path(path).read_text()
    name = text.split('"')[1]
    (python,) = re.findall('python = "(.*)"', text)
    with hosts() as (head,):
        table = f'[[host]]\nname = "head"\naddress = "{head.address}"\nport = {head.port}\n'
        table += f'python = "{python}"\nhead = true\n'
        of_the_head = '[[instances]]\nhead = true\ntype = "cpu_4x_general"\n'
        assert of_the_head in text
        text = f'ssh_config = "{head.config}"\n{text.replace(of_the_head, table)}'
        Path(path).write_text(text)
        assert main(["up", "--on", "lambda", path, *WITHIN]) == 0
        assert len(account.alive) == 2
        assert main(["pods", "--hosts", path, "-o", "json"]) == 0
        pods = json.loads(capfd.readouterr().out)
        assert sorted((pod["group"], pod["ip"] == head.address) for pod in pods) == [
            ("gpu", False),
            ("headgroup", True),
        ]
        head.stop()
        assert main(["down", "--on", "lambda", path, "--yes"]) == 3
        failure = capfd.readouterr().err
        assert "The instances have ended, but" in failure
        assert "not removed from head" in failure
        assert account.alive == []
        assert state.load(name) is not None
        head.start()
        assert main(["down", "--on", "lambda", path, "--yes"]) == 0
        assert state.load(name) is None


@pytest.mark.parametrize("given", [None, "", "gpu-1", "fe80::1%x\n  ProxyCommand evil"])
def test_address_of_the_api_that_is_no_address_reaches_no_file_of_ssh(given: str | None) -> None:
    with pytest.raises(CockpitError, match="The instance of gpu-1 has no address"):
        _address("gpu-1", given)
    assert _address("gpu-1", "fe80::1%eth0") == "fe80::1%eth0"
