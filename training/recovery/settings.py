"""The settings of recovery, as environment variables, so that a job can be tuned unchanged."""

from __future__ import annotations

import os

from training.settings import boolean_variable

SPARES = boolean_variable("COCKPIT_RECOVERY_SPARES", default=True)
"""Whether each node holds spare processes for the run."""

SPARE_MEMORY_BYTES = int(float(os.environ.get("COCKPIT_RECOVERY_SPARE_MB", "1024")) * (1 << 20))
"""A spare imports nothing if less memory than this is left, because the ranks need it more."""

IMPORTS_BYTES = 512 << 20
"""The memory of a run's libraries in a process: 0.49 GB with torch and Ray Train."""

CHECK_EVERY_S = 2.0
"""How often the controller checks for nodes without spares."""

STARTING_CHECK_S = 0.5
"""The same while an elastic run waits for a spare to grow."""

SECOND_S = 30.0
"""How long after the start of an attempt its second spare for each rank is made."""

CPU_SHARE = 0.2
"""The share of a CPU that a fork server's imports use while ranks want the CPU."""

READY_POLL_S = 0.05
"""How often a worker that started a fork server checks whether it is ready."""

START_S = 40.0
"""How long a worker waits for a fork server, less than Ray waits for the worker (60 s)."""

SPARES_S = 8.0
"""How long an elastic run waits with its growth for spare processes on a node that has joined."""

MAKE_S = 60.0
"""How long the controller waits for a spare process to start before it asks for another."""

UNASKED_S = 300.0
"""How long a process that has imported early waits for the first worker of its node."""

UNUSED_S = 30.0
"""How long a fork server remains without a worker of its own."""

KEEP_S = 30 * 24 * 3600
"""How long Ray keeps an idle spare; it ends with its job in any case."""

DYING_S = 10.0
"""How long an elastic restart waits for the GCS to detect a node that no longer responds."""
