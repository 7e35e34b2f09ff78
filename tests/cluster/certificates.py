"""The certificates of the test cluster: one authority and the certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    certificate: Path
    key: Path


class Authority:
    """Keeps its files, and those of everyone that it signs for, in one folder (mode 0700)."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.certificate = folder / "ca.crt"
        key_path = folder / "ca.key"
        if self.certificate.exists():
            loaded = serialization.load_pem_private_key(key_path.read_bytes(), None)
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            self._key = loaded
            self._name = x509.load_pem_x509_certificate(self.certificate.read_bytes()).subject
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cockpit-test")])
        made = (
            self._builder(self._name, self._key.public_key(), DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        _write(key_path, _pem(self._key))
        _write(self.certificate, made.public_bytes(serialization.Encoding.PEM))

    def sign(
        self,
        name: str,
        groups: Sequence[str] = (),
        *,
        hosts: Sequence[str] = (),
        lifetime: datetime.timedelta = DAY,
    ) -> Pair:
        """A certificate for a user (common name and groups) or, with `hosts`, for a server.

        A negative `lifetime` creates an expired one.
        """
        file_name = name.replace(":", "_")
        pair = Pair(self.folder / f"{file_name}.crt", self.folder / f"{file_name}.key")
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        builder = self._builder(subject, key.public_key(), lifetime)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        made = builder.sign(self._key, hashes.SHA256())
        _write(pair.key, _pem(key))
        _write(pair.certificate, made.public_bytes(serialization.Encoding.PEM))
        return pair

    def service_account_key(self) -> Pair:
        """The keys that sign and verify the tokens of ServiceAccounts."""
        pair = Pair(self.folder / "sa.pub", self.folder / "sa.key")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _write(pair.key, _pem(key))
        _write(pair.certificate, public)
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + min(lifetime, datetime.timedelta()) - DAY)
            .not_valid_after(now + lifetime)
        )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)
