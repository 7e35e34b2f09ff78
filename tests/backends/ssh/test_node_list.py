"""A hosts file from the nodes of a running Ray cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.backends.ssh.description import parse
from cockpit.backends.ssh.node_list import text
from cockpit.cli.main import main
from cockpit.model.cluster import Node
from cockpit.model.error import UsageError

HEAD = Node("a", "10.0.0.1", "Login_1.example.com", is_head=True, alive=True)
WORKER = Node(
    "b", "10.0.0.2", "gpu-1", is_head=False, alive=True, resources={"CPU": 8.0, "GPU": 2.0}
)
DEAD = replace(WORKER, id="c", ip="10.0.0.9", alive=False)


def test_living_nodes_are_hosts_with_what_they_offer() -> None:
    same_name = replace(WORKER, id="d", ip="10.0.0.3", resources={"CPU": 4.0})
    hosts = parse(text([HEAD, WORKER, same_name, DEAD], "lab"), Path("/hosts.toml"))
    assert hosts.cluster == "lab"
    assert [(h.name, h.address, h.is_head, h.cpus, h.gpus) for h in hosts.hosts] == [
        ("login-1", "10.0.0.1", True, None, None),
        ("gpu-1", "10.0.0.2", False, 8.0, 2.0),
        ("10.0.0.3", "10.0.0.3", False, 4.0, None),
    ]
    assert hosts.replicas == {"workers": 2}


@pytest.mark.parametrize(
    ("nodes", "what"),
    [
        ([WORKER], "0 living heads"),
        ([HEAD, WORKER, replace(WORKER, id="d")], "Several Ray nodes have the address 10.0.0.2"),
        ([HEAD, replace(WORKER, ip='1" ssh = "x')], "is no IP address"),
        ([HEAD, replace(WORKER, ip='fe80::1%x"\npython = "evil')], "is no IP address"),
    ],
)
def test_nodes_that_cannot_be_a_cluster_on_hosts_are_refused(nodes: list[Node], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        text(nodes, "lab")


@pytest.mark.parametrize("flags", [["--local"], ["--address", "http://h:1", "--on", "lambda"]])
def test_other_clusters_are_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-o", "hosts", *flags]) == 2
    assert "-o hosts is for a Ray cluster at a URL" in capsys.readouterr().err
