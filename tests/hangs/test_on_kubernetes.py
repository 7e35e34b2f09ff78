"""Unmodified scripts on a real RayCluster on Kubernetes, whose rank 1 is stuck."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cockpit.actions.guard import Guard
from cockpit.actions.guard_acts import GuardActions
from cockpit.cli.main import main
from cockpit.guard.policy import Action, Policy
from cockpit.session import builder
from cockpit.session.session import Session
from tests.cluster.fixtures import RealCluster
from tests.cluster.raycluster import STORAGE
from tests.hangs.stuck_script import check, end, hang

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timed]
RESTARTED_WITHIN_S = 120.0


@pytest.fixture(scope="module")
def session(ray_on_kubernetes: RealCluster) -> Iterator[Session]:
    """On the cluster with a second worker."""
    ref = ray_on_kubernetes.ref
    where = ("-n", ref.namespace, "--cluster", ref.name, "--context", ref.context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(ray_on_kubernetes.kubeconfig))
        assert main(["scale", "gpu", "2", "--yes", *where]) == 0
        ray_on_kubernetes.wait_ready(2)
        with builder.session_on(ray_on_kubernetes.backend()) as session:
            yield session
        assert main(["scale", "gpu", "1", "--yes", *where]) == 0
        ray_on_kubernetes.wait_ready(1)


@pytest.fixture(autouse=True)
def ended_jobs(session: Session) -> Iterator[None]:
    """Also after a failure: a test that failed under load runs again on the same cluster."""
    yield
    end(session)


@pytest.mark.nightly  # on a local cluster: tests/hangs/test_on_ray.py
@pytest.mark.parametrize("script", ["lightning_fit.py", "transformers_fit.py"])
def test_stuck_rank_of_an_unmodified_script_is_named_within_30_s(
    script: str, session: Session, ray_on_kubernetes: RealCluster
) -> None:
    shared = ray_on_kubernetes.testbed.plane.space.folder / "shared"
    name = script.removesuffix("_fit.py")
    options = ("--storage-path", f"{STORAGE}/hangs", "--name", name, "--epochs", "100000")
    stick = ("--stick", f"{STORAGE}/stick-{name}")
    run, found = hang(session, script, (*options, *stick), name, (shared / f"stick-{name}").touch)
    check(session, run, found, script)


@pytest.mark.nightly  # on a local cluster: tests/guard/test_guard_on_local.py
def test_guard_ends_the_stuck_rank_of_a_torch_script_and_the_run_continues(
    session: Session, ray_on_kubernetes: RealCluster
) -> None:
    shared = ray_on_kubernetes.testbed.plane.space.folder / "shared" / "stuck"
    shared.mkdir(exist_ok=True)
    name, script = "stuck", "stuck_torch.py"
    run, found = hang(session, script, (f"{STORAGE}/stuck",), name, (shared / "stick").touch)
    check(session, run, found, script)
    before = run.attempt
    assert before is not None
    lines: list[str] = []
    guard = Guard(session, GuardActions(session), Policy(hang=Action.RESTART), lines.append)
    watching = session.submit(guard.watch())

    def resumed(_: object) -> bool:
        now = session.store.runs[run.id].attempt
        return now is not None and now.number > before.number and now.reported_s is not None

    assert session.wait(resumed, RESTARTED_WITHIN_S), lines
    guard.end()
    assert session.wait(lambda store: watching.done(), 60.0)
    assert any("done: " in line for line in lines), lines
