"""The TOML description of hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.backends.ssh.description import HEAD_GROUP, Host, Hosts, parse, read
from cockpit.model.error import UsageError

FILE = Path("/etc/cluster/hosts.toml")
HEAD = '[[host]]\nname = "head"\naddress = "10.0.0.1"\nhead = true\n'


def parsed(text: str) -> Hosts:
    return parse(text, FILE)


def test_a_host_takes_the_defaults_of_the_top() -> None:
    hosts = parsed(
        'cluster = "lab"\nuser = "ubuntu"\nport = 2222\nvenv = "/opt/venv/"\n'
        'ssh_config = "config"\n'
        "[replicas]\ngpu = 1\n"
        + HEAD
        + '[[host]]\nname = "gpu-1"\naddress = "10.0.0.2"\ngroup = "gpu"\nssh = "one"\ngpus = 8\n'
        + '[[host]]\nname = "gpu-2"\naddress = "10.0.0.3"\ngroup = "gpu"\nuser = "root"\n'
        + "port = 22\n"
        + 'python = "/usr/bin/python3"\ncpus = 4\nobject_store_bytes = 1000\ntype = "dgx-h100"\n'
    )
    assert hosts.path == str(FILE)
    assert (hosts.cluster, hosts.replicas) == ("lab", {"gpu": 1})
    assert hosts.ssh_config == "/etc/cluster/config"
    assert hosts.head == Host(
        "head", "10.0.0.1", "10.0.0.1", HEAD_GROUP, "ubuntu", 2222, "/opt/venv/bin/python"
    )
    assert hosts.of_group("gpu") == (
        Host(
            *("gpu-1", "10.0.0.2", "one", "gpu", "ubuntu", 2222, "/opt/venv/bin/python"),
            gpus=8.0,
        ),
        Host(
            *("gpu-2", "10.0.0.3", "10.0.0.3", "gpu", "root", 22, "/usr/bin/python3"),
            cpus=4.0,
            object_store_bytes=1000,
            type="dgx-h100",
        ),
    )


def test_packages_are_for_hosts_with_a_virtual_environment() -> None:
    hosts = parsed(
        'venv = "/opt/venv"\npackages = ["ray[default]==2.60.0", "torch"]\n'
        + HEAD
        + '[[host]]\nname = "a"\naddress = "10.0.0.2"\npython = "python3"\n'
        + '[[host]]\nname = "b"\naddress = "10.0.0.3"\npackages = "numpy"\n'
    )
    assert [host.packages for host in hosts.hosts] == [
        ("ray[default]==2.60.0", "torch"),
        (),
        ("numpy",),
    ]


@pytest.mark.parametrize(
    ("top", "host", "line", "why"),
    [
        ('packages = "numpy"\n', "", 1, "only in a virtual environment"),
        ('venv = "/v"\n', 'packages = ["-r /etc/passwd"]\n', 6, "a requirement of pip"),
        ("", 'python = "p"\npackages = "numpy"\n', 6, "only in a virtual environment"),
    ],
)
def test_packages_that_cannot_be_installed_are_refused_with_their_line(
    top: str, host: str, line: int, why: str
) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        parsed(top + HEAD + host)
    assert f":{line}:" in raised.value.what or f"line {line}" in raised.value.what


def test_pods_are_units_of_systemd_where_it_is_asked_for() -> None:
    text = 'supervisor = "systemd"\n' + HEAD + '[[host]]\nname = "a"\naddress = "10.0.0.2"\n'
    assert [host.is_unit for host in parsed(text).hosts] == [True, True]
    assert [host.is_unit for host in parsed(text + 'supervisor = "process"\n').hosts] == [
        True,
        False,
    ]
    with pytest.raises(UsageError, match="process or systemd"):
        parsed(text.replace('"systemd"', '"runit"'))


def test_every_host_of_a_group_is_used_without_replicas() -> None:
    hosts = parsed(HEAD + '[[host]]\nname = "a"\naddress = "10.0.0.2"\n')
    assert (hosts.cluster, hosts.replicas) == ("hosts", {"workers": 1})
    assert hosts.hosts[1].python == "python3"


def test_host_is_found_by_the_name_of_its_pod() -> None:
    hosts = parsed(HEAD + '[[host]]\nname = "head-2"\naddress = "10.0.0.2"\n')
    assert hosts.of_pod("head-2-x7k2p").name == "head-2"
    assert hosts.of_pod("head-x7k2p").name == "head"
    with pytest.raises(UsageError, match="no-such-pod"):
        hosts.of_pod("no-such-pod")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "it describes 0 hosts"),
        ("[[host]]\naddress = 1\n", 1, "name is missing"),
        ('[[host]]\nname = "-x"\n', 2, "name is '-x'"),
        ('[[host]]\nname = "a"\naddress = "gpu-1"\n', 3, "the address of host 'a' is 'gpu-1'"),
        ('[[host]]\nname = "a"\naddress = "fe80::1%e\\n#"\n', 3, "the address of host 'a' is"),
        ('[[host]]\nname = "a"\naddress = "10.0.0.2"\n', 1, "one host is the head"),
        (HEAD + HEAD, 6, "two hosts have the name 'head'"),
        (HEAD + HEAD.replace('"head"', '"b"'), 7, "two hosts have the address '10.0.0.1'"),
        (HEAD + HEAD.replace('"head"', '"b"').replace("0.1", "0.2"), 1, "one host is the head"),
        (HEAD + "adress = 3\n", 5, "a host has no 'adress': did you mean address?"),
        (HEAD + 'group = "gpu"\n', 5, "the head has no group"),
        (HEAD + "port = 70000\n", 5, "port is 70000"),
        ("port = 0\n" + HEAD, 1, "port is 0"),
        (HEAD + 'ssh = "-oProxyCommand=x"\n', 5, "ssh is '-oProxyCommand=x'"),
        ('user = "a b"\n' + HEAD, 1, "user is 'a b'"),
        (HEAD + 'python = "p"\nvenv = "v"\n', 6, "both python and venv"),
        (HEAD + "[replicas]\ngpu = 1\n", 6, "replicas has no 'gpu'"),
        (
            HEAD + '[[host]]\nname = "b"\naddress = "::1"\n[replicas]\nworkers = 2\n',
            9,
            "group workers asks for 2 Ray nodes",
        ),
        (HEAD + "gpus = true\n", 5, "gpus is true"),
        ("host = 3\n", 1, "host is 3"),
        ("x", 1, "it is not valid TOML"),
    ],
)
def test_invalid_description_is_refused_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed(text)
    assert refused.value.what.startswith(f"{FILE}:{line}:")
    assert what in refused.value.what


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"hosts\.toml cannot be read") as refused:
        read(str(tmp_path / "hosts.toml"))
    assert "--hosts FILE" in refused.value.todo
