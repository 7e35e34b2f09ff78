"""Resolve a name to a cluster of the fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cockpit.model.cluster import ClusterRef
from cockpit.model.error import UsageError


def named(found: Sequence[ClusterRef], text: str, here: ClusterRef | None) -> ClusterRef:
    """By `cluster`, `namespace/cluster` or `context/namespace/cluster`.

    Of several, the one in the same context and namespace as `here`, then in the same context.
    Raises UsageError.
    """
    meant = [ref for ref in found if text in _names(ref)]
    if here is not None and len(meant) > 1:
        near = [ref for ref in meant if ref.context == here.context]
        nearer = [ref for ref in near if ref.namespace == here.namespace]
        meant = nearer or near or meant
    if not meant:
        names = ", ".join(short_names(found)) or "none yet"
        raise UsageError(f"There is no cluster {text!r}.", f"Clusters: {names}.")
    if len(meant) > 1:
        raise UsageError(
            f"{text!r} matches several clusters.",
            ", ".join(_names(ref)[-1] for ref in meant) + ".",
        )
    return meant[0]


def short_names(found: Sequence[ClusterRef]) -> list[str]:
    """Of each the shortest name that only it has."""
    often = Counter(name for ref in found for name in _names(ref))
    return [next((n for n in _names(ref) if often[n] == 1), _names(ref)[-1]) for ref in found]


def scope(
    found: Sequence[ClusterRef], contexts: Sequence[str], context: str, namespace: str
) -> list[ClusterRef]:
    """The clusters there; empty values match all. Raises UsageError for unknown names."""
    if context and context not in contexts:
        raise UsageError(
            f"There is no context {context!r}.", f"Contexts: {', '.join(contexts) or 'none'}."
        )
    there = [ref for ref in found if not context or ref.context == context]
    if namespace and all(ref.namespace != namespace for ref in there):
        names = ", ".join(sorted({ref.namespace for ref in there})) or "none"
        raise UsageError(
            f"No cluster is known in namespace {namespace!r}"
            + (f" of {context}." if context else "."),
            f"Namespaces with a cluster: {names}.",
        )
    return [ref for ref in there if not namespace or ref.namespace == namespace]


def _names(ref: ClusterRef) -> tuple[str, str, str]:
    in_namespace = f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
    return ref.name, in_namespace, f"{ref.context}/{in_namespace}" if ref.context else in_namespace
