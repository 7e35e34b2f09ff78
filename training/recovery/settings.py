"""The few numbers of recovery. Environment variables so that a job can be tuned without an edit."""

from __future__ import annotations

import os

from training.settings import boolean_variable

SPARES = boolean_variable("COCKPIT_RECOVERY_SPARES", default=True)
"""Whether each node holds spare processes for the run."""

SPARE_MEMORY_BYTES = int(float(os.environ.get("COCKPIT_RECOVERY_SPARE_MB", "1024")) * (1 << 20))
"""A spare imports nothing if less memory than this is left: the ranks need it more."""

IMPORTS_BYTES = 512 << 20
"""What the libraries of a run take in a process: 0.49 GB with torch and Ray Train."""

LOOK_S = 2.0
"""How often the controller looks for nodes that have no spares yet."""

KEEP_S = 30 * 24 * 3600
"""How long Ray leaves an idle spare alone; it goes with its job in any case."""

DYING_S = 10.0
"""How long an elastic restart waits for the GCS to notice a node that does not answer any more."""
