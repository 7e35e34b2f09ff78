"""The TOML description of a cluster on Lambda Cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.backends.lambda_cloud.description import (
    Placed,
    Wanted,
    hosts,
    hosts_of,
    parse,
    read,
)
from cockpit.backends.lambda_cloud.limits import Spending
from cockpit.backends.ssh.description import HEAD_GROUP
from cockpit.model.error import UnreachableError, UsageError
from tests.backends.lambda_cloud.conftest import TEXT

EXAMPLES = Path(__file__).parents[3] / "manifests/vm"
FILE = Path("/etc/cluster/lab.toml")
MIXED = """
cluster = "lab"
user = "me"
ssh_config = "config"

[[host]]  # on-premises
name = "head"
address = "10.0.0.1"
head = true

[lambda]
region = ["us-east-1", "us-west-1"]
ssh_key = "~/.ssh/id"
user = "root"

[spending]
max_per_hour = 20
max_total = 99.5
confirm_above = 1
idle_minutes = 30
when_idle = "end"

[[instances]]
group = "gpu"
type = "gpu_1x_a10"
count = 2
max_per_hour = 0.8

[replicas]
gpu = 1
"""


def test_instances_are_named_after_their_groups() -> None:
    cloud = parse(TEXT, FILE)
    assert cloud.wanted == (
        Wanted("head", HEAD_GROUP, "cpu_4x_general"),
        Wanted("gpu-1", "gpu", "gpu_1x_a10"),
        Wanted("gpu-2", "gpu", "gpu_1x_a10"),
    )
    assert (cloud.regions, cloud.ssh_key) == (("us-east-1",), "/etc/cluster/id")
    assert cloud.spending == Spending()


def test_a_head_on_premises_has_workers_in_the_cloud() -> None:
    cloud = parse(MIXED, FILE)
    assert cloud.spending == Spending(2000, 9950, 100, 1800.0, ends_idle=True)
    placed = [Placed("gpu-1", "10.1.0.1", 30, 1), Placed("gpu-2", "10.1.0.2", 30, 1)]
    text, described = hosts(cloud, placed, Path("/state/hosts.toml"), Path("/state/ssh_config"))
    assert "[lambda]" not in text
    assert described.ssh_config == "/state/ssh_config"
    assert described.head.user == "me"
    assert described.replicas == {"gpu": 1}
    first = described.of_group("gpu")[0]
    assert (first.name, first.address, first.ssh) == ("gpu-1", "10.1.0.1", "lab.gpu-1.cockpit")
    assert (first.user, first.port, first.gpus, first.cpus) == ("root", 22, 1.0, 30.0)
    assert first.type == "gpu_1x_a10"
    assert first.python == "/root/cockpit-venv/bin/python"


@pytest.mark.parametrize(
    ("before", "after", "line", "what"),
    [
        ('type = "gpu_1x_a10"\n', "", 23, "type is missing"),
        ('type = "gpu_1x_a10"', 'type = "a b"', 25, "type is 'a b'"),
        ("count = 2", "count = 0", 26, "count is 0"),
        ("head = true\n", "", 6, "one host is the head"),
        ('group = "gpu"\n', "head = true\n", 23, "the head is one instance"),
        ("gpu = 1", "gpu = 3", 30, "asks for 3 Ray nodes"),
        ("[[host]]  # on-premises", "[[host]]\nkind = 1", 7, "a host has no 'kind'"),
        ('when_idle = "end"', 'when_idle = "stop"', 21, "It is ask or end"),
        ("region = [", "regions = [", 12, "did you mean region"),
        ('region = ["us-east-1", "us-west-1"]\n', "", 11, "region is missing"),
        ('ssh_key = "~/.ssh/id"\n', "", 11, "ssh_key is missing"),
        ('user = "root"', 'allow_ssh_from = "10.0.0.1/8"', 14, "It is an IPv4 network"),
        ('user = "root"', 'packages = ["a; rm -rf /"]', 14, "a requirement of pip"),
        ('address = "10.0.0.1"', 'address = "127.0.0.1"', 6, "a loopback address"),
    ],
)
def test_error_names_the_line(before: str, after: str, line: int, what: str) -> None:
    assert before in MIXED
    with pytest.raises(UsageError) as raised:
        parse(MIXED.replace(before, after, 1), FILE)
    assert what.lower() in str(raised.value).lower()
    assert f"{FILE}:{line}:" in raised.value.what


@pytest.mark.parametrize("name", ["lambda", "hybrid"])
def test_examples_of_the_manifests_are_valid(name: str) -> None:
    cloud = read(str(EXAMPLES / f"{name}.toml"))
    assert cloud.spending.max_total == 5000
    assert {wanted.group for wanted in cloud.wanted} >= {"gpu"}


def test_file_without_instances_is_for_hosts() -> None:
    with pytest.raises(UsageError, match="describes no instances"):
        parse('[[host]]\nname = "a"\naddress = "10.0.0.1"\nhead = true\n', FILE)


def test_hosts_of_instances_that_are_not_up_are_refused(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(MIXED)
    with pytest.raises(UnreachableError, match="are not up"):
        hosts_of(str(tmp_path / "lab.toml"))
