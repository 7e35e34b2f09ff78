"""What can be copied of an object: its name, the command that shows it, and its JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from cockpit.model.cluster import ClusterRef
from cockpit.tui.dialogs.reading import JSON
from cockpit.tui.view_state import Target

Copies = Mapping[str, tuple[str, str]]


def copies(target: Target, ref: ClusterRef | None) -> Copies:
    """By the key of `Reading`: what it is called, and its text."""
    return {
        "n": ("name", target.name),
        "m": ("command", command(target, ref)),
        JSON: ("JSON", ""),
    }


def command(target: Target, ref: ClusterRef | None) -> str:
    """The command of cockpit that shows the object, with the flags that name the cluster."""
    name = shlex.quote(target.name)
    on_kubernetes = ref is not None and ref.backend == "kuberay"
    match target.kind:
        case "pod" | "group" | "node" | "rayjob" if on_kubernetes:
            verb = f"describe {target.kind}/{name}"
        case "pod" | "job":
            verb = f"logs {name}"
        case "rank":
            verb = f"stack {name}"
        case "trial":
            verb = "trials"
        case "run":
            return f"cockpit replay {name}"
        case _:
            verb = {"group": "groups", "node": "nodes"}.get(target.kind, "status")
    return " ".join(("cockpit", verb, *flags(ref)))


def flags(ref: ClusterRef | None) -> list[str]:
    """The flags that select the cluster, quoted."""
    if ref is None:
        return []
    named = {
        "kuberay": {"--context": ref.context, "-n": ref.namespace, "--cluster": ref.name},
        "address": {"--address": f"http://{ref.name}"},
        "ssh": {"--hosts": ref.context},
    }.get(ref.backend, {"--local --cluster": ref.name})
    return [f"{flag} {shlex.quote(value)}" for flag, value in named.items() if value]
