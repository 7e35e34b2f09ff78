"""`python -m tests.cluster`: the test cluster by hand."""

from __future__ import annotations

import argparse
import sys

from tests.cluster.build import missing
from tests.cluster.control_plane import ControlPlane
from tests.cluster.space import Space, kept
from tests.cluster.testbed import Testbed
from tests.cluster.traces import Traces


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start a Kubernetes that stays until `down`")
    up.add_argument("--control-plane", action="store_true", help="no node, no operator")
    up.add_argument("--simulated", action="store_true", help="KWOK as well")
    verbs.add_parser("down", help="end every one that `up` started")
    verbs.add_parser("status", help="those that run")
    args = parser.parse_args()
    if args.verb == "up":
        if why := missing():
            print(f"No Kubernetes can be started here: {why}.", file=sys.stderr)
            return 1
        whole = not args.control_plane
        testbed = Testbed.up(real=whole, operator=whole, simulated=args.simulated, keep=True)
        print(f"export KUBECONFIG={testbed.kubeconfig}")
    for space in kept():
        if args.verb == "down":
            traces = Traces.of(space)
            space.close()
            traces.wait_until_ended()
            print(f"ended {space.name}")
        elif args.verb == "status":
            _tell(space)
    return 0


def _tell(space: Space) -> None:
    plane = ControlPlane.of(space)
    print(f"{space.name}: {plane.server}, kubeconfig {plane.kubeconfig}")


if __name__ == "__main__":
    sys.exit(main())
