"""etcd, the API server, the controller manager and the scheduler, inside a space."""

from __future__ import annotations

import json
import signal
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.build import program
from tests.cluster.certificates import Authority, Pair
from tests.cluster.space import Space

PORT = 6443
SERVICES = "10.96.0.0/16"
START_TIMEOUT_S = 60.0
_CONTROLLERS = ("system:kube-controller-manager", "system:kube-scheduler")
_UNLIMITED = ("--kube-api-qps=500", "--kube-api-burst=1000")
"""Their usual limits are for a server that others use, and cost 4 s of the start."""


@dataclass(slots=True)
class ControlPlane:
    space: Space
    authority: Authority

    @property
    def server(self) -> str:
        return f"https://{self.space.address}:{PORT}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.space.folder / "admin.kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.space.folder / "audit.log"

    @classmethod
    def start(cls, space: Space, *, aggregated: bool = False) -> ControlPlane:
        """All programs are up and respond; RuntimeError with the log's end of one that does not.

        With `aggregated`, the API server passes on requests for APIs that others serve.
        """
        authority = Authority(space.folder / "certificates")
        plane = cls(space, authority)
        plane._write_files()
        plane.start_etcd()
        plane.start_api_server(*(plane._aggregation() if aggregated else ()))
        plane.wait_for("/readyz")  # the controllers end if they wait for it for more than 25 s
        plane._start_others()
        plane.wait_until_ready()
        return plane

    @classmethod
    def of(cls, space: Space) -> ControlPlane:
        """That of a space which runs already."""
        return cls(space, Authority(space.folder / "certificates"))

    def user_kubeconfig(
        self, name: str, groups: Sequence[str] = (), *, pair: Pair | None = None
    ) -> Path:
        """A kubeconfig for any user, by a client certificate."""
        path = self.space.folder / f"{name.replace(':', '_')}.kubeconfig"
        return self._kubeconfig(path, pair or self.authority.sign(name, groups))

    def start_etcd(self) -> None:
        data = self.space.folder / "etcd"
        self.space.start(
            "etcd",
            [
                program("etcd"),
                f"--data-dir={data}",
                "--listen-client-urls=http://127.0.0.1:2379",
                "--advertise-client-urls=http://127.0.0.1:2379",
                "--listen-peer-urls=http://127.0.0.1:2380",
                "--unsafe-no-fsync",
                "--log-level=warn",
                "--auto-compaction-mode=periodic",
                "--auto-compaction-retention=0",
            ],
        )

    def start_api_server(self, *more: str) -> None:
        folder = self.authority.folder
        self.space.start(
            "kube-apiserver",
            [
                program("kube-apiserver"),
                "--etcd-servers=http://127.0.0.1:2379",
                "--bind-address=0.0.0.0",
                f"--secure-port={PORT}",
                f"--advertise-address={self.space.address}",
                f"--tls-cert-file={folder}/server.crt",
                f"--tls-private-key-file={folder}/server.key",
                f"--client-ca-file={self.authority.certificate}",
                "--authorization-mode=Node,RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder}/sa.pub",
                f"--service-account-signing-key-file={folder}/sa.key",
                f"--service-cluster-ip-range={SERVICES}",
                f"--kubelet-client-certificate={folder}/admin.crt",
                f"--kubelet-client-key={folder}/admin.key",
                "--kubelet-preferred-address-types=InternalIP",
                "--allow-privileged=true",
                "--profiling=false",
                f"--audit-policy-file={self.space.folder}/audit-policy.yaml",
                f"--audit-log-path={self.audit_log}",
                *more,
            ],
        )

    def stop_api_server(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.space.stop("kube-apiserver", number)

    def ask(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json"
    ) -> Any:
        """One request as the administrator; urllib's errors."""
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content},
        )
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        folder = self.authority.folder
        context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text[:1] in (b"{", b"[") else text.decode()

    def wait_until_ready(self) -> None:
        """Until the API server is, and the default namespace has its ServiceAccount."""
        self.wait_for("/readyz")
        self.wait_for("/api/v1/namespaces/default/serviceaccounts/default")

    def wait_for(self, path: str) -> None:
        """Wait until the path responds; RuntimeError with the log's end if it does not."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.ask("GET", path)
                return
            except (OSError, urllib.error.HTTPError) as error:
                if ended := self.space.ended():
                    raise RuntimeError(ended) from error
                if time.monotonic() > deadline:
                    text = self.space.said("kube-apiserver")
                    raise RuntimeError(f"no answer to {path}: {error}\n{text}") from error
                time.sleep(0.1)

    def _aggregation(self) -> tuple[str, ...]:
        pair = self.authority.sign("front-proxy")
        return (
            f"--requestheader-client-ca-file={self.authority.certificate}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={pair.certificate}",
            f"--proxy-client-key-file={pair.key}",
            "--enable-aggregator-routing=true",
        )

    def _start_others(self) -> None:
        folder = self.authority.folder
        self.space.start(
            "kube-controller-manager",
            [
                program("kube-controller-manager"),
                f"--kubeconfig={self.space.folder}/system_kube-controller-manager.kubeconfig",
                f"--service-account-private-key-file={folder}/sa.key",
                f"--root-ca-file={self.authority.certificate}",
                "--use-service-account-credentials=true",
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
                "--node-monitor-grace-period=30s",
                "--concurrent-gc-syncs=10",
                *_UNLIMITED,
            ],
        )
        self.space.start(
            "kube-scheduler",
            [
                program("kube-scheduler"),
                f"--kubeconfig={self.space.folder}/system_kube-scheduler.kubeconfig",
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
                *_UNLIMITED,
            ],
        )

    def _write_files(self) -> None:
        hosts = (
            *("127.0.0.1", "localhost", self.space.address, "10.96.0.1"),
            *("kubernetes", "kubernetes.default", "kubernetes.default.svc"),
        )
        self.authority.sign("server", hosts=hosts)
        self.authority.service_account_key()
        self._kubeconfig(self.kubeconfig, self.authority.sign("admin", ["system:masters"]))
        for user in _CONTROLLERS:
            self.user_kubeconfig(user)
        (self.space.folder / "audit-policy.yaml").write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "audit.k8s.io/v1",
                    "kind": "Policy",
                    "omitStages": ["RequestReceived"],
                    "rules": [
                        {"level": "None", "userGroups": ["system:masters", "system:nodes"]},
                        {"level": "None", "users": ["system:kube-proxy", "system:apiserver"]},
                        {"level": "None", "users": list(_CONTROLLERS)},
                        {"level": "None", "userGroups": ["system:serviceaccounts"]},
                        {"level": "Metadata"},
                    ],
                }
            )
        )

    def _kubeconfig(self, path: Path, pair: Pair) -> Path:
        """Paths of certificates in it are absolute: it can be copied about on this machine."""
        name = path.stem
        path.touch(mode=0o600)
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": name,
                    "clusters": [
                        {
                            "name": "testbed",
                            "cluster": {
                                "server": self.server,
                                "certificate-authority": str(self.authority.certificate),
                            },
                        }
                    ],
                    "users": [
                        {
                            "name": name,
                            "user": {
                                "client-certificate": str(pair.certificate),
                                "client-key": str(pair.key),
                            },
                        }
                    ],
                    "contexts": [{"name": name, "context": {"cluster": "testbed", "user": name}}],
                }
            )
        )
        return path
