"""A real MLflow server whose runs and models are in a real PostgreSQL, as in our manifests.

Needs the Debian package postgresql, which it does not install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sources.mlflow_server import MlflowServer
from tests.sources.prometheus_server import free_port

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
USER, PASSWORD, DATABASE = "mlflow", "p4ss", "mlflow"
READY_S = 60.0

pytestmark = [
    pytest.mark.nightly,  # with SQLite: tests/sources/test_mlflow.py
    pytest.mark.skipif(
        not PROGRAMS, reason="PostgreSQL is not installed: apt-get install postgresql"
    ),
]

LOGGED = """
import math, mlflow, sys
from mlflow import MlflowClient
mlflow.set_experiment("digits")
with mlflow.start_run(run_name="stored", tags={"ray_train_run_id": "ab12"}) as run:
    mlflow.log_params({"lr": 0.1, "settings": "x" * 6000})
    for step in range(3):
        mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
    mlflow.log_metrics({"diverged": math.nan, "odd": math.inf})
    mlflow.log_text("weights", "model/weights.txt")
client = MlflowClient()
client.create_registered_model("digits")
version = client.create_model_version("digits", run.info.artifact_uri + "/model", run.info.run_id)
client.set_registered_model_alias("digits", "best", version.version)
"""
READ = """
import math, mlflow
from mlflow import MlflowClient
client = MlflowClient()
version = client.get_model_version_by_alias("digits", "best")
run = client.get_run(version.run_id)
asked = "metrics.loss < 0.5 and tags.ray_train_run_id = 'ab12'"
[found] = client.search_runs([run.info.experiment_id], asked)
assert found.info.run_id == run.info.run_id
assert (run.info.run_name, run.info.status) == ("stored", "FINISHED")
assert (run.data.params["lr"], len(run.data.params["settings"])) == ("0.1", 6000)
assert [each.step for each in client.get_metric_history(version.run_id, "loss")] == [0, 1, 2]
assert math.isnan(run.data.metrics["diverged"])
assert run.data.metrics["odd"] > 1e300
assert mlflow.artifacts.load_text(version.source + "/weights.txt") == "weights"
"""


@dataclass(frozen=True)
class Postgres:
    """A server on loopback with a database and a user of MLflow."""

    folder: Path
    port: int

    @property
    def address(self) -> str:
        """As the comment of the component mlflow-postgres describes it."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def ask(self, query: str, database: str = DATABASE) -> str:
        """What the query returns, without a header."""
        connection = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database)
        return subprocess.run(
            [PROGRAMS[-1].with_name("psql"), *connection, "-XAtc", query],
            env=os.environ | {"PGPASSWORD": PASSWORD},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.strip()

    def accepts(self) -> bool:
        ready: list[str | Path] = [
            PROGRAMS[-1].with_name("pg_isready"),
            "-q",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        return subprocess.run(ready, check=False).returncode == 0


@contextmanager
def postgres() -> Iterator[Postgres]:
    """PostgreSQL refuses to run as root, so the user of Debian's package runs it."""
    user = "postgres" if os.getuid() == 0 else None
    # Not in pytest's folder, which only its own user can enter.
    folder = Path(tempfile.mkdtemp(prefix="cockpit-postgres-"))
    made = Postgres(folder, free_port())
    try:
        (folder / "password").write_text(PASSWORD)
        if user is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        programs, data = PROGRAMS[-1].parent, folder / "data"
        make: list[str | Path] = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            USER,
            "--auth=scram-sha-256",
            "--no-sync",
        ]
        make += ["-E", "UTF8", f"--pwfile={folder / 'password'}"]
        subprocess.run(make, user=user, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        serve: list[str | Path] = [
            programs / "postgres",
            "-D",
            data,
            "-p",
            str(made.port),
            "-k",
            folder,
            "-F",
        ]
        serve += ["-c", "listen_addresses=127.0.0.1"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(serve, user=user, cwd=folder, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + READY_S
            while not made.accepts():
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.1)
            made.ask(f"create database {DATABASE}", "postgres")
            yield made
        finally:
            process.terminate()
            process.wait(READY_S)
    finally:
        shutil.rmtree(folder)


def driver_of_the_image(folder: Path) -> Path:
    """What the image of the training pods installs of the extra `postgres`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = project["optional-dependencies"]["postgres"]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "-q", "--target", folder),
            *("-c", ROOT / "constraints.txt", *packages),
        ],
        check=True,
    )
    return folder


def test_runs_and_models_are_in_postgresql_and_outlive_the_server(tmp_path: Path) -> None:
    driver = driver_of_the_image(tmp_path / "driver")
    with postgres() as database:
        # As in the Deployment of the manifests: the address is a variable, not an argument.
        variables = {
            "MLFLOW_BACKEND_STORE_URI": database.address,
            "PYTHONPATH": str(driver),
            "PSYCOPG_IMPL": "binary",  # not the libpq of this host, which the image does not have
        }
        with MlflowServer(tmp_path, variables).running() as server:
            server.script(LOGGED)
            server.stop()
            server.start()
            server.script(READ)
        assert database.ask("select name, status from runs") == "stored|FINISHED"
        assert database.ask("select count(*) from metrics where key = 'loss'") == "3"
        assert database.ask("select alias, version from registered_model_aliases") == "best|1"
        assert not (tmp_path / "mlflow.db").exists()
