"""Select the proxy for an API server.

By the rules of Go's programs, since NO_PROXY is written for kubectl: Python's do not support
networks (`10.0.0.0/8`), which most users list for their clusters. Source:
golang.org/x/net/http/httpproxy.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(server: str, environment: Mapping[str, str] = os.environ) -> str:
    """The proxy's URL from the environment; empty: no proxy."""
    parts = urlsplit(server)
    found = _variable(environment, f"{parts.scheme}_proxy") or _variable(environment, "all_proxy")
    if not found or _is_excepted(parts.hostname or "", parts.port or 443, environment):
        return ""
    return found if "://" in found else f"http://{found}"


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _is_excepted(host: str, port: int, environment: Mapping[str, str]) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = _variable(environment, "no_proxy").split(",")
    return any(_matches(entry.strip().lower(), host, address, port) for entry in entries)


def _matches(
    entry: str,
    host: str,
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None,
    port: int,
) -> bool:
    if entry == "*":
        return True
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdecimal() and (":" not in name or name.endswith("]")):
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    if not entry:
        return False
    if address is not None:
        try:
            return address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    # `example.com` is that and what is below it; `.example.com`, `*.example.com` only the latter.
    entry = entry.removeprefix("*")
    return host.endswith(entry if entry.startswith(".") else f".{entry}") or host == entry


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
