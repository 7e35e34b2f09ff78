"""End what is held under this key, if it is.

release.py KEY [refuse]

With `refuse` nothing of this key may begin later.
"""

from __future__ import annotations

import sys

from cockpit.drills.pod_scripts.process import ended
from cockpit.drills.pod_scripts.timed_effect import release

sys.exit(ended(lambda: print(release(sys.argv[1], "refuse" in sys.argv[2:]))))
