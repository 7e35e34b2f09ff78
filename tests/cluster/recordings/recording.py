"""A recording, as stored in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.recordings.facts import Fact
from tests.cluster.recordings.manifests import Manifest

FOLDER = Path(__file__).parent
NAMES = ("operator", "autoscaler", "multi-host")


@dataclass(frozen=True, slots=True)
class Action:
    """One action and all its consequences."""

    name: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    cluster: Manifest
    made: dict[str, Manifest]
    """`head`, `worker` and each service: the first of each that the operator made."""
    actions: tuple[Action, ...]

    def facts(self) -> Iterator[Fact]:
        for action in self.actions:
            yield from action.facts

    @classmethod
    def load(cls, name: str) -> Recording:
        data = json.loads((FOLDER / f"{name}.json").read_text())
        actions = tuple(
            Action(
                action["name"],
                tuple(Fact(fact.pop("t"), fact.pop("of"), fact) for fact in action["facts"]),
            )
            for action in data["actions"]
        )
        return cls(name, data["cluster"], data["made"], actions)

    def save(self) -> Path:
        """One fact a line, to be read."""
        lines = ["{", f'"cluster": {json.dumps(self.cluster, indent=1, sort_keys=True)},']
        lines.append(f'"made": {json.dumps(self.made, indent=1, sort_keys=True)},')
        lines.append('"actions": [')
        for action in self.actions:
            facts = ",\n  ".join(
                json.dumps({"t": fact.t, "of": fact.of, **fact.change}, ensure_ascii=False)
                for fact in action.facts
            )
            end = "" if action is self.actions[-1] else ","
            lines.append(f' {{"name": {json.dumps(action.name)}, "facts": [\n  {facts}\n ]}}{end}')
        lines += ["]}", ""]
        path = FOLDER / f"{self.name}.json"
        path.write_text("\n".join(lines))
        return path
