"""What the user may not do is refused before anything is sent."""

from __future__ import annotations

from cockpit.model.error import NotAllowedError
from cockpit.model.text import as_sentence
from cockpit.session.session import Session

WORDS = {
    "scale": "scale this cluster",
    "delete_pod": "delete pods here",
    "exec": "run commands in pods here",
    "launch": "reach the dashboard, and so submit or end jobs here",
    "rayjob": "make or end RayJobs here",
    "suspend": "suspend or resume this cluster",
    "cordon": "cordon Kubernetes nodes",
    "manifest": "read objects here",
    "describe": "describe objects here",
}


def require(session: Session, verb: str) -> None:
    """Raises NotAllowedError when `capabilities` says that this user may not do it here.

    Rights are Kubernetes' affair. What another cluster cannot do now (its head is not ready, its
    operator is gone) it says itself when it is asked, with what to do.
    """
    if session.backend.ref.backend != "kuberay":
        return
    capability = session.call(session.backend.capabilities()).get(verb)
    if capability is None or capability.allowed:
        return
    raise NotAllowedError(
        f"You cannot {WORDS.get(verb, verb)}.",
        as_sentence(capability.why_not),
        "cockpit doctor lists what you may do, and how to fix what is missing.",
    )
