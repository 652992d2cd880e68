"""A real Kubernetes control plane on this machine; the kubelets alone are simulated, by kwok."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nodepool.local.ports import HOST
from support.ports import free_port

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodepool" / "kubernetes"
"""Where `make testbed` puts the programs."""
READY_S = 60.0
END_S = 20.0
PAUSE_S = 0.1
TOKEN = "test"

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "{server}", insecure-skip-tls-verify: true}}}}]
users: [{{name: admin, user: {{token: {token}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]
current-context: test
"""

CLIENT_FLAGS = (
    "--kubeconfig=kubeconfig",
    "--authentication-kubeconfig=kubeconfig",
    "--authorization-kubeconfig=kubeconfig",
    "--secure-port=0",
    "--leader-elect=false",
)
CONTROLLER_MANAGER_FLAGS = (
    *CLIENT_FLAGS,
    "--service-account-private-key-file=accounts.key",
    "--controllers=*,-nodeipam,-service-lb-controller",
)
SIMULATED = "kwok.x-k8s.io/node=fake"
"""The annotation of a Node whose kubelet kwok plays."""

Document = Mapping[str, Any]
"""An object of the API as JSON has it."""


class KubectlError(Exception):
    """A kubectl command that failed, with what it wrote to standard error."""


def missing() -> str:
    """Why no cluster can be started, as one line; empty where one can."""
    for program in ("kubectl", "openssl"):
        if shutil.which(program) is None:
            return f"{program} is not on PATH"
    if not (CACHE / "testbed").exists():
        return "there is no Kubernetes to test against; `make testbed` builds one, with Go 1.26"
    return ""


class Cluster:
    """etcd, API server, controller manager, scheduler and kwok on free ports of the loopback.

    folder: where each keeps its data and its log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._api, self._etcd, self._peer, self._kwok = (free_port() for _ in range(4))
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._stop_all()

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """What kubectl prints for these arguments; raises KubectlError where it fails."""
        done = self.run(*arguments, given=given)
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def run(self, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """One kubectl command, whatever becomes of it; `given` is its standard input."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=60, check=False
        )

    @contextmanager
    def watching(self, *arguments: str) -> Iterator[list[str]]:
        """Watches an object meanwhile; the list has a line for each state of it once this ends."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), "get", *arguments, "--watch"]
        seen: list[str] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            # The state that it has now: from here on, none is missed.
            seen.append(process.stdout.readline().rstrip("\n"))
            try:
                yield seen
            finally:
                process.terminate()
                seen += process.stdout.read().splitlines()

    def objects(self, kind: str, namespace: str, selector: str = "") -> Sequence[Document]:
        """The objects of a kind in a namespace."""
        arguments = ["get", kind, "-n", namespace, "-o", "json"]
        if selector:
            arguments += ["-l", selector]
        items: Sequence[Document] = json.loads(self.kubectl(*arguments))["items"]
        return items

    def _start_all(self) -> None:
        self._write_files()
        etcd, peer = f"http://{HOST}:{self._etcd}", f"http://{HOST}:{self._peer}"
        self._start_component("etcd", _etcd_flags(etcd, peer))
        self._start_component("kube-apiserver", _api_server_flags(etcd, self._api))
        wait_until("the API server is ready", self._is_ready, READY_S)
        self._start_component("kube-controller-manager", CONTROLLER_MANAGER_FLAGS)
        self._start_component("kube-scheduler", CLIENT_FLAGS)
        self._start("kwok", [str(CACHE / "kwok"), *self._kwok_flags()])
        wait_until("there is the account of the default namespace", self._has_account, READY_S)

    def _write_files(self) -> None:
        """The keys of service accounts, the one user, and how it connects."""
        self.folder.mkdir(parents=True, exist_ok=True)
        key = ["openssl", "genrsa", "-out", "accounts.key", "2048"]
        subprocess.run(key, cwd=self.folder, check=True, capture_output=True)
        (self.folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        server = f"https://{HOST}:{self._api}"
        self.kubeconfig.write_text(KUBECONFIG.format(server=server, token=TOKEN))

    def _kwok_flags(self) -> Sequence[str]:
        stages = [f"--config={path}" for path in sorted((CACHE / "stages").glob("*.yaml"))]
        return (
            "--kubeconfig=kubeconfig",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={SIMULATED}",
            "--node-lease-duration-seconds=40",
            f"--server-address={HOST}:{self._kwok}",
            *stages,
        )

    def _start_component(self, name: str, flags: Sequence[str]) -> None:
        self._start(name, [str(CACHE / "testbed"), name, *flags])

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._processes.append(process)

    def _stop_all(self) -> None:
        """Ends all of them, the clients of the API server before it, and etcd last."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _is_ready(self) -> bool:
        return self.run("get", "--raw", "/readyz").returncode == 0

    def _has_account(self) -> bool:
        return self.run("get", "serviceaccount", "default").returncode == 0


def _etcd_flags(etcd: str, peer: str) -> Sequence[str]:
    return (
        "--data-dir=etcd-data",
        "--unsafe-no-fsync",
        "--log-level=error",
        f"--listen-client-urls={etcd}",
        f"--advertise-client-urls={etcd}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    )


def _api_server_flags(etcd: str, port: int) -> Sequence[str]:
    return (
        f"--etcd-servers={etcd}",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        "--cert-dir=certificates",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=accounts.key",
        "--service-account-signing-key-file=accounts.key",
        "--token-auth-file=tokens.csv",
        "--authorization-mode=RBAC",
    )


def wait_until(what: str, holds: Callable[[], bool], within_s: float) -> None:
    """Returns once `holds`; raises TimeoutError, which names `what`, where that takes too long."""
    end, pause = time.monotonic() + within_s, threading.Event()
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"after {within_s:.0f} s it is not so that {what}")
        pause.wait(PAUSE_S)


@contextmanager
def started() -> Iterator[Cluster]:
    """A cluster in a folder of its own, which goes with it."""
    with (
        tempfile.TemporaryDirectory(prefix="nodepool-kubernetes-") as folder,
        Cluster(Path(folder)) as cluster,
    ):
        yield cluster
