"""The verbs of a call, and what it answers when one is refused."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

from cockpit.backends.ssh.agent.cluster import change, init, lead, remove, retire, token
from cockpit.backends.ssh.agent.host import facts
from cockpit.backends.ssh.agent.place import Place
from cockpit.backends.ssh.agent.pod import attach, delete, exec_, logs
from cockpit.backends.ssh.agent.state import status
from cockpit.backends.ssh.agent.streams import REFUSED, put
from cockpit.backends.ssh.agent.supervisor import start, supervise
from cockpit.model.error import CockpitError, ReplacedError, UsageError

VERBS = {
    "facts": facts,
    "init": init,
    "token": token,
    "change": change,
    "start": start,
    "supervise": supervise,
    "status": status,
    "delete": delete,
    "logs": logs,
    "exec": exec_,
    "attach": attach,
    "lead": lead,
    "retire": retire,
    "remove": remove,
}


def main(argv: list[str]) -> int:
    os.umask(0o077)
    verb, request = argv[0], json.loads(argv[1])
    place = Place(request["key"]) if "key" in request else Place(Path.cwd().name[2:])
    try:
        VERBS[verb](place, request)
    except ReplacedError as error:
        put({"error": {"replaced": [error.kind, error.name]}})
    except CockpitError as error:
        usage = isinstance(error, UsageError)
        fields = {"what": error.what, "why": error.why, "todo": error.todo, "usage": usage}
        put({"error": fields})
    except BrokenPipeError:
        os._exit(1)  # the connection has ended
    except OSError as error:
        what = f"The agent on {socket.gethostname()} failed ({verb})."
        put({"error": {"what": what, "why": str(error), "todo": "", "usage": False}})
    else:
        return 0
    return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
