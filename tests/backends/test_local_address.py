"""Addresses, ports and GPUs that nobody else has."""

from __future__ import annotations

import socket

import pytest

from cockpit.backends.local.address import (
    choose_address,
    choose_network,
    choose_ports,
    port_is_free,
)
from cockpit.backends.local.gpus import gpus_here, take_gpus


def test_a_network_is_loopback_and_not_the_usual_one() -> None:
    octets = [int(octet) for octet in choose_network().split(".")]
    assert octets[0] == 127
    assert octets[1] >= 64


def test_a_network_in_use_is_not_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    places = iter([10, 20, 11, 21])
    monkeypatch.setattr("secrets.randbelow", lambda below: next(places))
    with socket.socket() as other:
        other.bind(("127.74.20.7", 0))
        other.listen()
        assert choose_network() == "127.75.21"


def test_the_first_worker_comes_after_the_head() -> None:
    assert choose_address("127.77.1", []) == "127.77.1.2"


def test_a_replacement_never_has_the_address_of_the_dead() -> None:
    assert choose_address("127.77.1", ["127.77.1.2", "127.77.1.3"]) == "127.77.1.4"


def test_when_all_addresses_were_used_the_oldest_comes_again() -> None:
    used = [f"127.77.1.{last}" for last in range(2, 255)]
    oldest = used.pop(40)
    assert choose_address("127.77.1", [oldest, *used]) == oldest


def test_chosen_ports_differ_and_are_free() -> None:
    ports = choose_ports(20)
    assert len(set(ports)) == 20
    assert all(port_is_free(port) for port in ports)


def test_a_port_bound_on_any_address_is_not_free() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert not port_is_free(other.getsockname()[1])


def test_only_the_gpus_that_the_user_was_given_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    assert gpus_here() == ("3", "5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus_here() == ()


def test_a_gpu_is_given_to_one_pod_at_a_time() -> None:
    assert take_gpus(1, ("0", "1"), ("0",)) == ("1",)
    assert take_gpus(2, ("0", "1"), ("0",)) is None
    assert take_gpus(0, (), ()) == ()
