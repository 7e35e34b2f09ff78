"""Whether a source has answered a one-shot verb: without an answer, an empty list is wrong."""

from __future__ import annotations

from collections.abc import Iterable

from cockpit.model.error import UnreachableError
from cockpit.model.text import as_sentence
from cockpit.session.session import Session
from cockpit.store.store import Store

HINTS = {
    "local": "See: cockpit local status, cockpit doctor",
    "address": "--address takes the URL of a Ray dashboard, such as http://head:8265",
    "ssh": "Check the hosts: cockpit doctor --hosts FILE. Start it: cockpit up --on hosts FILE",
    "kuberay": "See: cockpit clusters, cockpit doctor",
}


def has_answered(store: Store, source: str) -> bool:
    """Whether the source has reported, or that what it reads does not exist."""
    state = store.sources.get(source)
    return state is not None and (state.ok or state.absent)


def require(session: Session, sources: Iterable[str]) -> None:
    """Raise UnreachableError for the first of the sources that has not answered."""
    for source in sources:
        if not has_answered(session.store, source):
            _raise(session, source)


def _raise(session: Session, source: str) -> None:
    ref, state = session.backend.ref, session.store.sources.get(source)
    if state is not None and ref.backend == "kuberay":
        # A request for it alone shows whether it is a right, a name or the network.
        session.call(session.backend.manifest("cluster", ref.name))
    raise UnreachableError(
        f"The {source} source of {ref} does not answer.",
        as_sentence(state.error.rstrip(".") if state else "no response in time"),
        HINTS.get(ref.backend, "cockpit status shows each source."),
    )
