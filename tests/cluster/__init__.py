"""A real Kubernetes on this host, for the tests.

`python -m tests.cluster up` starts one that stays until `down`; the fixtures `control_plane` and
`kubernetes` start one for a session. All of it needs root, Go, and the Debian packages of
`build.PACKAGES`.

`build` builds the programs from the Go modules pinned under `modules/`; `space` creates the
namespaces for all of it, and `leftovers` finds what is outside of them; `control_plane`, `node` and
`kwok` run there; `operator` replaces KubeRay's, `crds` are its kinds, and `raycluster` creates
RayClusters whose pods run the Ray of this virtual environment.

Environment: COCKPIT_TESTBED_CACHE (the folder of the programs, else the user's cache),
KUBERAY_OPERATOR (the binary of a KubeRay operator, in place of ours), KUBERAY_CRDS (a folder with
KubeRay's definitions, in place of ours and of those of the tests).
"""
