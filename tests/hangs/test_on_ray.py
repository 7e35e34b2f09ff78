"""Unmodified Lightning and Transformers scripts on a real Ray, whose rank 1 is stuck.

A plain torch script is in tests/guard/test_guard_on_local.py; tests/hangs/test_corpus.py has the
kinds of hangs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.backends.local import GroupSpec
from cockpit.cli.main import main
from cockpit.model.cluster import Resources
from cockpit.session import builder
from cockpit.session.session import Session
from tests.hangs.stuck_script import check, end, hang
from tests.local_cluster import running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timed]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    group = GroupSpec("workers", 2, min=0, max=2, resources=Resources(cpus=1.0))
    with running_cluster("stuck", [group]) as backend, builder.session_on(backend) as session:
        yield session


@pytest.fixture(autouse=True)
def ended_jobs(session: Session) -> Iterator[None]:
    """Also after a failure: a test that failed under load runs again on the same cluster."""
    yield
    end(session)


@pytest.mark.nightly  # of plain torch: tests/guard/test_guard_on_local.py
@pytest.mark.parametrize(
    "script",
    ["lightning_fit.py", "transformers_fit.py"],
)
def test_stuck_rank_of_an_unmodified_script_is_named_within_30_s(
    script: str, session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stick, name = tmp_path / "stick", script.removesuffix("_fit.py")
    options = ("--storage-path", str(tmp_path), "--name", name, "--epochs", "100000")
    run, found = hang(session, script, (*options, "--stick", str(stick)), name, stick.touch)
    check(session, run, found, script)
    assert main(["hang", name, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["ranks"] == [1]
    assert main(["why", name]) == 0
    assert "`stuck`" in capsys.readouterr().out
    assert main(["status"]) == 0
    assert "STALLED for" in capsys.readouterr().out
