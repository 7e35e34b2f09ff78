"""The resources that the driver of a job reserves on its node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field


class DriverResources(Struct, frozen=True):
    """Ray reserves nothing by default."""

    cpus: float | None = None
    gpus: float | None = None
    memory_bytes: int | None = None
    custom: Mapping[str, float] = field(default_factory=dict)

    def as_fields(self) -> dict[str, Any]:
        """The fields of Ray's job submission API; unset ones are omitted."""
        fields = {
            "entrypoint_num_cpus": self.cpus,
            "entrypoint_num_gpus": self.gpus,
            "entrypoint_memory": self.memory_bytes,
            "entrypoint_resources": dict(self.custom) or None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> DriverResources:
        """The inverse of `as_fields`."""
        return cls(
            fields.get("entrypoint_num_cpus"),
            fields.get("entrypoint_num_gpus"),
            fields.get("entrypoint_memory"),
            fields.get("entrypoint_resources") or {},
        )


NOTHING_RESERVED = DriverResources()
