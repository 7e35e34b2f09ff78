"""Read kubeconfig files as kubectl does: contexts and their settings.

The `kubernetes` package is not used, since its import alone costs 0.2 s of the 0.35 s that `cockpit
status` may take, and it is not installed with cockpit: see `auth_provider`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from cockpit.model.decoding import limited_yaml
from cockpit.model.decoding.limited_json import LimitError
from cockpit.model.decoding.limited_yaml import InvalidYamlError
from cockpit.model.error import UnreachableError, UsageError
from cockpit.model.partly_shown import PartlyShown
from cockpit.model.text import as_sentence, one_line

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER = "in-cluster"
_FIX = "Fix this file, or select another one: --kubeconfig FILE"


class KubeContext(PartlyShown, frozen=True):
    """A named context of one API server. `namespace` is `default` if the file has none."""

    SHOWN = ("name", "namespace", "server", "user")

    name: str
    namespace: str
    server: str
    user: str
    cluster: Mapping[str, Any]
    """The entry of the file (`certificate-authority`, `proxy-url`, …), paths made absolute."""
    credential: Mapping[str, Any]
    """The user's entry (`token`, `client-certificate`, `exec`, …), paths made absolute."""


class KubeConfig(Struct, frozen=True):
    contexts: tuple[KubeContext, ...]
    current: str
    """The name of the context that is taken when none is named; it may be missing."""

    def context(self, name: str = "") -> KubeContext:
        """That of the name, or the current one. UsageError when there is none such."""
        wanted = name or self.current
        for context in self.contexts:
            if context.name == wanted:
                return context
        import difflib  # 5 ms, for an error

        names = [context.name for context in self.contexts]
        near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.4) or names[:6]
        if not wanted:
            raise UsageError(
                "The kubeconfig has no current context.",
                f"Contexts: {one_line(', '.join(names[:6]))}.",
                "Select one with --context NAME.",
            )
        raise UsageError(
            f"There is no context {one_line(wanted)!r} in the kubeconfig.",
            f"Available: {one_line(', '.join(near)) or 'none'}.",
            "Select one with --context NAME; see: cockpit contexts",
        )


def paths(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The files of KUBECONFIG, or the usual one."""
    if named := environment.get("KUBECONFIG", ""):
        return tuple(Path(part).expanduser() for part in named.split(os.pathsep) if part)
    return (Path.home() / ".kube" / "config",)


def read(files: Sequence[Path] | None = None) -> KubeConfig:
    """Merge all files as kubectl does: the first value of a name is used.

    Without a file, a pod's ServiceAccount is the context `in-cluster`. UnreachableError without
    any, UsageError for a file that cannot be read.
    """
    wanted = paths() if files is None else tuple(files)
    documents = [(path, document) for path in wanted if (document := _load(path)) is not None]
    if not documents:
        inside = _in_cluster()
        if inside is not None:
            return KubeConfig((inside,), IN_CLUSTER)
        raise UnreachableError(
            "There is no kubeconfig.",
            f"Searched: {', '.join(map(str, wanted)) or 'nothing: KUBECONFIG is empty'}.",
            "Set KUBECONFIG or --kubeconfig FILE, or start a local cluster: cockpit local up",
        )
    clusters: dict[str, Mapping[str, Any]] = {}
    users: dict[str, Mapping[str, Any]] = {}
    named: dict[str, Mapping[str, Any]] = {}
    current = ""
    for path, document in documents:
        current = current or str(document.get("current-context") or "")
        for name, entry in _entries(path, document, "clusters", "cluster"):
            clusters.setdefault(name, _absolute(path, entry, ("certificate-authority",)))
        for name, entry in _entries(path, document, "users", "user"):
            files_in_it = ("client-certificate", "client-key", "tokenFile")
            users.setdefault(name, _absolute(path, entry, files_in_it))
        for name, entry in _entries(path, document, "contexts", "context"):
            named.setdefault(name, entry)
    contexts = tuple(
        KubeContext(
            name=name,
            namespace=str(entry.get("namespace") or "default"),
            server=str(clusters.get(str(entry.get("cluster")), {}).get("server") or "").rstrip("/"),
            user=str(entry.get("user") or ""),
            cluster=clusters.get(str(entry.get("cluster")), {}),
            credential=users.get(str(entry.get("user")), {}),
        )
        for name, entry in named.items()
    )
    return KubeConfig(contexts, current)


def _load(path: Path) -> Mapping[str, Any] | None:
    """The document, or None when there is no such file or it is empty (kubectl takes both)."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The kubeconfig {path} cannot be read.", one_line(str(error)), _FIX
        ) from error
    try:
        document = limited_yaml.loads(text)
    except LimitError as error:
        raise UsageError(
            f"The kubeconfig {path} is not a kubeconfig.", as_sentence(str(error)), _FIX
        ) from error
    except InvalidYamlError as error:
        line = f", line {error.line}" if error.line is not None else ""
        raise UsageError(f"The kubeconfig {path} is not YAML{line}.", f"{error}.", _FIX) from error
    if document is None:
        return None
    if not isinstance(document, dict):
        raise UsageError(
            f"The kubeconfig {path} is not a kubeconfig.", "It is not a mapping.", _FIX
        )
    return document


def _entries(
    path: Path, document: Mapping[str, Any], plural: str, singular: str
) -> list[tuple[str, Mapping[str, Any]]]:
    listed = document.get(plural) or []
    found = []
    for item in listed if isinstance(listed, list) else [None]:
        entry = item.get(singular) if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(entry or {}, dict) or "name" not in item:
            raise UsageError(
                f"The kubeconfig {path} is broken.",
                f"`{plural}` is not a list of named entries.",
                _FIX,
            )
        found.append((str(item["name"]), entry or {}))
    return found


def _absolute(path: Path, entry: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any]:
    """Paths in a kubeconfig are relative to the folder of the file that holds them."""
    made = dict(entry)
    for key in keys:
        if made.get(key):
            made[key] = str(path.parent / str(made[key]))
    plugin = made.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command") or ""):
        made["exec"] = {**plugin, "command": str(path.parent / str(plugin["command"]))}
    return made


def _in_cluster() -> KubeContext | None:
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT"),
    )
    token = SERVICE_ACCOUNT / "token"
    if not host or not token.exists():
        return None
    namespace = SERVICE_ACCOUNT / "namespace"
    return KubeContext(
        name=IN_CLUSTER,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        server=f"https://{f'[{host}]' if ':' in host else host}:{port or 443}",
        user="the pod's ServiceAccount",
        cluster={"certificate-authority": str(SERVICE_ACCOUNT / "ca.crt")},
        credential={"tokenFile": str(token)},
    )
