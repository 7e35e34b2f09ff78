from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.backends.lambda_cloud import api
from cockpit.backends.lambda_cloud.api import Pace
from cockpit.backends.lambda_cloud.description import Cloud, read
from tests.lambda_cloud import KEY, LambdaCloud
from tests.sshd import make_key

TEXT = """
cluster = "lab"

[lambda]
region = "us-east-1"
ssh_key = "id"

[[instances]]
head = true
type = "cpu_4x_general"

[[instances]]
group = "gpu"
type = "gpu_1x_a10"
count = 2
"""


@pytest.fixture
def lambda_cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[LambdaCloud]:
    """The account, empty, and its key in the environment."""
    monkeypatch.setattr(api, "PACE", Pace(0.0, 0.0, 0.0))
    with LambdaCloud().serve() as served:
        monkeypatch.setenv("LAMBDA_API_URL", served.url)
        monkeypatch.setenv("LAMBDA_API_KEY", KEY)
        yield served


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key; its public key is beside it."""
    path = tmp_path_factory.mktemp("key") / "id"
    make_key(path)
    return path


@pytest.fixture
def described(tmp_path: Path, key: Path) -> Cloud:
    return described_in(tmp_path, key)


def described_in(folder: Path, key: Path, text: str = TEXT) -> Cloud:
    """The description in a file of the folder, with the key beside it."""
    for name in ("id", "id.pub"):
        (folder / name).write_bytes((key.parent / name).read_bytes())
        (folder / name).chmod(0o600)
    (folder / "cluster.toml").write_text(text)
    return read(str(folder / "cluster.toml"))
