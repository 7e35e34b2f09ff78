"""Clusters on which a destructive change needs the cluster's name, typed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cockpit.model.cluster import ClusterRef


@dataclass(frozen=True, slots=True)
class ClusterPattern:
    """Glob patterns, all of which a cluster has to match: `*`, `?` and `[…]`, as in a shell."""

    context: str = "*"
    namespace: str = "*"
    cluster: str = "*"
    backend: str = "*"
    """`local`, `address` or `kuberay`."""

    def matches(self, ref: ClusterRef) -> bool:
        pairs = (
            (ref.context, self.context),
            (ref.namespace, self.namespace),
            (ref.name, self.cluster),
            (ref.backend, self.backend),
        )
        return all(fnmatchcase(name, pattern) for name, pattern in pairs)


def is_protected(ref: ClusterRef, patterns: Iterable[ClusterPattern]) -> bool:
    return any(pattern.matches(ref) for pattern in patterns)
