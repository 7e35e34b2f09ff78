"""The state of a host, sent with each change."""

from __future__ import annotations

import json
import time
from typing import Any

from cockpit.backends.local.pods.pod_logs import last_line
from cockpit.backends.ssh.agent.cluster import has_operator
from cockpit.backends.ssh.agent.host import host_facts
from cockpit.backends.ssh.agent.place import Place, ended_s, lives
from cockpit.backends.ssh.agent.streams import input_ended, put
from cockpit.backends.ssh.agent.supervisor import FAILED_SHOWN_S

STATUS_S = 0.25
"""How often the files and processes are read; without a change, nothing is sent."""
HEARTBEAT_S = 5.0
FACTS_S = 30.0
SLOW_START_S = 20.0


def status(place: Place, request: dict[str, Any]) -> None:
    """Send the state of this host, then each change, until the input ends."""
    sent, sent_s, facts_s, known = "", 0.0, -FACTS_S, {}
    while True:
        now = time.monotonic()
        if now - facts_s >= FACTS_S:
            facts_s, known = now, host_facts()
        state = {
            "host": known,
            "cluster": place.cluster,
            "pods": shown_pods(place),
            "operator": has_operator(place),
        }
        text = json.dumps(state)
        if text != sent or now - sent_s >= HEARTBEAT_S:
            sent, sent_s = text, now
            put(state)
        if not request["follow"]:
            return
        time.sleep(STATUS_S)
        if input_ended():
            return


def shown_pods(place: Place) -> list[dict[str, Any]]:
    shown = []
    for record in place.pods():
        name, over = record["pod"]["name"], not lives(record)
        shown_s = time.time() - ended_s(record)
        deleted = record.get("deleted", False)
        reason = record.get("reason", "")
        if over and record.get("ended_s") is None:
            reason, shown_s = "its supervisor was killed", 0.0
        if not over and time.time() - float(record["pod"]["created_s"]) > SLOW_START_S:
            reason = last_line(place.file(name, "log"))
        shown.append(
            {
                "pod": record["pod"],
                "head_uid": record["head_uid"],
                "over": over,
                "shown": not over or (shown_s < FAILED_SHOWN_S and not deleted),
                "started_s": record.get("started_s"),
                "terminating": not over and place.file(name, "stop").exists(),
                "ended_s": record.get("ended_s"),
                "reason": reason,
            }
        )
    return shown
