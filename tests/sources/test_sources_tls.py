"""Certificate verification of external sources: the same for Prometheus and MLflow."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cockpit.model.error import UnreachableError
from cockpit.sources.mlflow.api import Mlflow
from cockpit.sources.mlflow.settings import MlflowSettings
from cockpit.sources.prometheus.api import Prometheus
from cockpit.sources.prometheus.settings import PrometheusSettings
from tests.cluster.certificates import Authority
from tests.sources.raw_server import RawServer, http

TIME = b'{"status":"success","data":{"result":[{"metric":{},"value":[1,"7"]}]}}'


@dataclass(frozen=True)
class Trust:
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True


async def prometheus(url: str, trust: Trust) -> None:
    settings = PrometheusSettings(
        url,
        ca_file=trust.ca_file,
        cert_file=trust.cert_file,
        key_file=trust.key_file,
        verify=trust.verify,
    )
    assert await Prometheus(settings).now_s() == 7.0


def joined(trust: Trust) -> str:
    """MLflow's variable names one file with the certificate and its key."""
    if not trust.cert_file:
        return ""
    path = Path(trust.cert_file).with_suffix(".both")
    path.write_text(Path(trust.cert_file).read_text() + Path(trust.key_file).read_text())
    return str(path)


async def mlflow(url: str, trust: Trust) -> None:
    settings = MlflowSettings(
        url, ca_file=trust.ca_file, cert_file=joined(trust), verify=trust.verify
    )
    client = Mlflow(settings)
    try:
        assert await client.experiments() == {}
    finally:
        await client.aclose()


Ask = Callable[[str, Trust], Awaitable[None]]
both = pytest.mark.parametrize("ask", [prometheus, mlflow])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def tls(authority: Authority) -> ssl.SSLContext:
    own = authority.sign("server", hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    return context


@both
async def test_certificate_of_an_unknown_authority_is_refused(
    ask: Ask, tls: ssl.SSLContext
) -> None:
    async with RawServer(lambda _: http(200, TIME), tls=tls).serve() as server:
        with pytest.raises(UnreachableError) as raised:
            await ask(server.url, Trust())
    assert "certificate verify failed" in str(raised.value).lower()


@both
async def test_the_authority_that_is_named_is_trusted(
    ask: Ask, tls: ssl.SSLContext, authority: Authority
) -> None:
    async with RawServer(lambda _: http(200, TIME), tls=tls).serve() as server:
        await ask(server.url, Trust(ca_file=str(authority.certificate)))


@both
async def test_any_is_taken_when_that_is_asked_for_and_nothing_is_printed(
    ask: Ask, tls: ssl.SSLContext, recwarn: pytest.WarningsRecorder
) -> None:
    async with RawServer(lambda _: http(200, TIME), tls=tls).serve() as server:
        await ask(server.url, Trust(verify=False))
    assert not list(recwarn)


@both
async def test_a_server_that_wants_a_certificate_gets_ours(
    ask: Ask, tls: ssl.SSLContext, authority: Authority
) -> None:
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(authority.certificate)
    own = authority.sign("anna")
    ca_file = str(authority.certificate)
    async with RawServer(lambda _: http(200, TIME), tls=tls).serve() as server:
        with pytest.raises(UnreachableError):
            await ask(server.url, Trust(ca_file))
        await ask(server.url, Trust(ca_file, str(own.certificate), str(own.key)))
