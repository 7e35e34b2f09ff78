"""What a scale request makes of the spec. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cockpit.backends.local.spec import ClusterSpec, check_group, check_groups
from cockpit.model.scale import clamped

GRACE_S = 30.0
"""Kubernetes' default grace period, for pods that a scale-down takes away."""


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """`None` leaves a number as it is; `remove` names pods that go first."""

    group: str
    replicas: int | None = None
    min: int | None = None
    max: int | None = None
    remove: tuple[str, ...] = ()
    grace_s: float = GRACE_S
    expected: int | None = None
    """Only where so many are asked for now."""

    def as_json(self) -> dict[str, Any]:
        return {"verb": "scale"} | {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> ScaleRequest:
        return cls(
            group=str(raw["group"]),
            replicas=_number(raw["replicas"]),
            min=_number(raw["min"]),
            max=_number(raw["max"]),
            remove=tuple(str(pod) for pod in raw["remove"]),
            grace_s=float(raw["grace_s"]),
            expected=_number(raw.get("expected")),
        )


def scaled_spec(spec: ClusterSpec, request: ScaleRequest) -> tuple[ClusterSpec, str]:
    """The spec after the request, and a warning when the number was clamped.

    Raises UsageError for an unknown group and for numbers that make no sense.
    """
    old = spec.group(request.group)
    wanted = replace(
        old,
        replicas=old.replicas if request.replicas is None else request.replicas,
        min=old.min if request.min is None else request.min,
        max=old.max if request.max is None else request.max,
    )
    check_group(wanted)
    _, warning = clamped(wanted.replicas, wanted.min, wanted.max)
    # KubeRay leaves the wrong number in its spec, so that a later, higher max would apply it by
    # surprise; here the clamped number is what stays.
    scaled = spec.with_group(replace(wanted, replicas=wanted.desired))
    check_groups(scaled.groups)
    return scaled, warning


def _number(raw: Any) -> int | None:
    return None if raw is None else int(raw)
