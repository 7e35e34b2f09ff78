"""Whether a source has answered a one-shot verb: without an answer, an empty list is wrong."""

from __future__ import annotations

from collections.abc import Iterable

from cockpit.model.error import UnreachableError
from cockpit.session.session import Session
from cockpit.store.store import Store

HINTS = {
    "local": "cockpit status shows each source; cockpit local status what is left of a cluster.",
    "address": "Is it the address of a Ray dashboard, such as http://head:8265?",
    "ssh": "cockpit up --on hosts FILE connects to each host, and starts a cluster.",
    "kuberay": "cockpit clusters shows what there is, cockpit doctor what is missing.",
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
        f"The {source} source of {ref} gives no answer.",
        state.error if state else "it did not answer in time",
        HINTS.get(ref.backend, "cockpit status shows each source."),
    )
