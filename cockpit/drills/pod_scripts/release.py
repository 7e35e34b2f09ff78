"""End the effect with this key, if there is one.

release.py KEY [refuse]

With `refuse` an effect with this key cannot begin later.
"""

from __future__ import annotations

import sys

from cockpit.drills.pod_scripts.linux.process import ended
from cockpit.drills.pod_scripts.timed_effect import release

sys.exit(ended(lambda: print(release(sys.argv[1], "refuse" in sys.argv[2:]))))
