"""`python -m tests.cluster.recordings.distil NAME TRACE.jsonl.gz`: a recording from a raw trace.

A trace has one JSON object a line: `t`, `kind`, and either `type` and `object` of a watch event or,
for the kind Action, a description of the action.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.cluster.recordings import manifests
from tests.cluster.recordings.facts import Fact, Reader
from tests.cluster.recordings.recording import Action, Recording

CLUSTER = "demo"
_PARTICULARS = re.compile(r"(StartedAt|FinishedAt|ContainerID):[^,}]*")


def distil(name: str, lines: Iterable[str]) -> Recording:
    reader = Reader(CLUSTER)
    actions: list[tuple[str, list[Fact]]] = []
    cluster: manifests.Manifest = {}
    made: dict[str, manifests.Manifest] = {}
    for line in lines:
        row = json.loads(line)
        if row["kind"] == "Action":
            if row["action"] != "end":
                actions.append((row["action"], []))
            continue
        item: dict[str, Any] = row["object"]
        if not actions:
            # Reported at the start of a watch, and older than the recording.
            continue
        fact = reader.read(round(row["t"], 3), row["type"], item)
        if fact is None:
            continue
        if fact.of == "event":
            message = _PARTICULARS.sub(r"\1:…", fact.change["message"])
            fact = Fact(fact.t, fact.of, {**fact.change, "message": message})
        actions[-1][1].append(fact)
        if fact.of == "cluster" and not cluster:
            cluster = manifests.cluster(item)
        elif fact.of.startswith("service "):
            made.setdefault(fact.of, manifests.service(item))
        elif fact.of.startswith("pod "):
            made.setdefault(fact.change.get("role", "worker"), manifests.pod(item))
    done = tuple(Action(text, tuple(facts)) for text, facts in actions)
    return Recording(name, cluster, made, done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("trace", type=Path)
    args = parser.parse_args()
    with gzip.open(args.trace, "rt") as lines:
        print(distil(args.name, lines).save())


if __name__ == "__main__":
    main()
