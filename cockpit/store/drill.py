"""The state of one drill, during and after its run."""

from __future__ import annotations

from msgspec import Struct, field

from cockpit.model.drill import DrillRecord, ProbeResult, Stage
from cockpit.model.event import DrillEnded, DrillProbed, DrillStaged


class DrillView(Struct):
    """`id` is the record's."""

    id: str
    name: str = ""
    stages: list[tuple[Stage, float]] = field(default_factory=list)
    message: str = ""
    """Of the newest stage."""
    probes: list[ProbeResult] = field(default_factory=list)
    record: DrillRecord | None = None
    """Once it has ended."""

    @property
    def stage(self) -> Stage:
        return self.stages[-1][0] if self.stages else Stage.PREPARING

    @property
    def began_s(self) -> float:
        return self.stages[0][1] if self.stages else (self.record.began_s if self.record else 0.0)

    def take(self, event: DrillStaged | DrillProbed | DrillEnded) -> None:
        match event:
            case DrillStaged():
                self.name, self.message = event.name, event.message
                if self.stage is not event.stage or not self.stages:
                    self.stages.append((event.stage, event.at_s))
            case DrillProbed():
                self.probes.append(event.result)
            case DrillEnded():
                self.name, self.record = event.record.name, event.record
