"""What a job needs, from its submission; and what a script imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.launch.environment import JobEnvironment
from cockpit.launch.job import bundled_jobs
from cockpit.launch.submission import bundled_spec, script_spec
from cockpit.preflight.demand import Demand, demand
from cockpit.preflight.imports import Imports, imported


def of(name: str, **settings: str) -> Demand:
    return demand(bundled_spec(name, settings))


@pytest.mark.parametrize("job", [job.name for job in bundled_jobs()])
def test_every_bundled_job_requires_torch_and_ray(job: str) -> None:
    found = of(job)
    assert {"torch", "ray"} <= set(found.modules)
    assert "training" not in found.modules
    assert "os" not in found.modules


def test_demand_of_a_job_is_that_of_its_settings() -> None:
    found = of(
        "checkpointed",
        workers="4",
        cpus_per_worker="2",
        memory_per_worker="2Gi",
        loader_workers="3",
        placement="spread",
        storage_path="/mnt/shared/runs",
        mlflow="http://mlflow:5000",
    )
    assert (found.workers, found.cpus, found.gpus) == (4, 2.0, 0.0)
    assert (found.memory_bytes, found.loaders, found.spread) == (2 << 30, 3, True)
    assert (found.storage, found.spares, found.only_head) == ("/mnt/shared/runs", True, False)
    assert "mlflow" in found.modules


def test_job_on_gpus_takes_one_each_and_no_cpu() -> None:
    found = of("ddp", gpu="true")
    assert (found.cpus, found.gpus) == (0.0, 1.0)


def test_what_a_job_needs_by_its_name_and_environment() -> None:
    assert "deepspeed" in of("deepspeed").modules
    assert of("checkpointed").storage == "~/ray_results"
    baseline = of("baseline")
    assert (baseline.only_head, baseline.workers, baseline.spares) == (True, 1, False)
    quiet = JobEnvironment(env_vars={"COCKPIT_RECOVERY_SPARES": "0"}, others={"pip": ["einops"]})
    found = demand(bundled_spec("checkpointed", environment=quiet))
    assert (found.spares, found.installs) == (False, "pip: einops")


def test_modules_of_a_command_are_those_that_its_script_imports(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "beside.py").write_text("import einops\n")
    (tmp_path / "src" / "train.py").write_text("import beside, torch\nimport training\n")
    found = demand(script_spec(("python", "src/train.py"), tmp_path))
    assert found.modules == ("ray", "torch")
    assert found.workers is None
    assert demand(script_spec(("./run.sh",), tmp_path)).modules == ("ray",)
    assert demand(script_spec(("python", "none.py"), tmp_path)).modules == ("ray",)


def test_imports_are_followed_within_the_folder_and_told_apart(tmp_path: Path) -> None:
    package = tmp_path / "own"
    package.mkdir()
    (package / "__init__.py").write_text("import yaml\n")
    (package / "model.py").write_text("from . import data\nimport torch.nn as nn\n")
    (package / "data.py").write_text(
        "import os\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import pandas\n"
        "try:\n    import pyarrow\nexcept ImportError:\n    pyarrow = None\n"
        "def load():\n    import einops\n    from own.late import x\n"
    )
    (package / "late.py").write_text("import torchvision\n")
    (tmp_path / "train.py").write_text("from own.model import Model\nimport broken\n")
    (tmp_path / "broken.py").write_text("import this is no python\n")
    assert imported(tmp_path / "train.py", tmp_path) == Imports(
        ("torch", "yaml"), ("einops", "pyarrow", "torchvision")
    )
