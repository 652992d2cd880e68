"""A real Kubernetes control plane on this machine; the kubelets alone are simulated, by kwok."""

import json
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

from testbed.components import (
    API_SERVER,
    CACHE,
    ETCD,
    ETCD_DATA,
    PARTS,
    Process,
    command,
    flags,
    missing,
    write_files,
    write_kubeconfig,
)
from testbed.paused import pause_process
from testbed.ports import free_port

__all__ = [
    "CACHE",
    "WITHIN_S",
    "Cluster",
    "KubectlError",
    "missing",
    "start_cluster",
    "wait_until",
    "without_skew",
]

WITHIN_S = 90.0
"""How long tests wait for what happens soon; a machine with much other work may stall."""
PAUSE_S = 0.1
LEASE_S = 8
"""How long the lease of a Node is valid, in seconds."""
USER_BINDING = ("clusterrolebinding", "user", "--clusterrole=cluster-admin", "--user=user")

RUN_S = 200.0
"""Longer than kubectl is told to wait for anything."""

Document = Mapping[str, Any]
"""An object of the API as JSON has it."""


class KubectlError(Exception):
    """A kubectl command that failed, with what it wrote to standard error."""


class Cluster:
    """etcd, API server, controller manager, scheduler and kwok on free ports of the loopback.

    folder: where each keeps its data and its log.
    lease_s: how long the lease of a Node is valid, in seconds.
    as_user: what kubectl is to a user of the cluster, an administrator by RBAC alone.
    """

    def __init__(self, folder: Path, lease_s: int = LEASE_S) -> None:
        self.folder = folder
        self.kubeconfig = folder / "admin.kubeconfig"
        self.user_kubeconfig = folder / "user.kubeconfig"
        self._ports = {name: free_port() for name in (*PARTS, "peer")}
        self.parts: Mapping[str, Process] = {
            part: Process([*command(part), *flags(part, self._ports, lease_s)], folder, part)
            for part in PARTS
        }

    @property
    def port(self) -> int:
        """The port of the API server."""
        return self._ports[API_SERVER]

    def __enter__(self) -> Self:
        try:
            write_files(self.folder, self.port)
            self.start(*PARTS)
            wait_until("the default namespace has its account", self._has_account, WITHIN_S)
            self.kubectl("create", *USER_BINDING)
        except BaseException:
            self.stop(*PARTS)
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop(*PARTS)

    def start(self, *parts: str) -> None:
        """Start these parts in the order of their dependencies.

        If the API server is one of the parts, wait until it is ready before the next part starts.
        """
        for part in PARTS:
            if part in parts:
                self.parts[part].start()
                if part == API_SERVER:
                    wait_until("the API server is ready", self.is_ready, WITHIN_S)

    def stop(self, *parts: str) -> None:
        """End these parts with SIGTERM: the API server after its clients, and etcd last."""
        for part in reversed(PARTS):
            if part in parts:
                self.parts[part].stop()

    def kill(self, *parts: str) -> None:
        """End these parts with SIGKILL."""
        for part in reversed(PARTS):
            if part in parts:
                self.parts[part].kill()

    def restart(self, *parts: str) -> None:
        """Stop these parts and start them again."""
        self.stop(*parts)
        self.start(*parts)

    def snapshot(self, name: str = "snapshot") -> Path:
        """Copy etcd's data while etcd is paused, and return the path of the copy.

        The copy is what a disk holds after a loss of power; etcd recovers from such a copy.
        """
        to = self.folder / name
        with pause_process(self.parts[ETCD].pid):
            shutil.copytree(self.folder / ETCD_DATA, to)
        return to

    def restore(self, snapshot: Path) -> None:
        """Go back to a snapshot, and restart every part, as etcd's manual requires.

        See https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/.
        """
        self.stop(*PARTS)
        shutil.rmtree(self.folder / ETCD_DATA)
        shutil.copytree(snapshot, self.folder / ETCD_DATA)
        self.start(*PARTS)

    def connect(self, user: str, token: str, port: int | None = None) -> Path:
        """Write a kubeconfig with this token, and return its path.

        port: the port at which the user reaches the API server; None for the server's own port.
        """
        path = self.folder / f"{user}.kubeconfig"
        write_kubeconfig(path, user, token, port or self.port)
        return path

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Return the output of kubectl for these arguments; raise KubectlError if kubectl fails."""
        done = self.run(*arguments, given=given)
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def run(
        self, *arguments: str, given: str | None = None, kubeconfig: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One kubectl command, whatever becomes of it.

        given: its standard input.
        kubeconfig: who sends it; None for the administrator.
        """
        connection = str(kubeconfig or self.kubeconfig)
        return subprocess.run(
            ["kubectl", "--kubeconfig", connection, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )

    @contextmanager
    def watching(self, *arguments: str) -> Iterator[list[str]]:
        """Watch an object until the context ends; each new state adds a line to the list."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), "get", *arguments, "--watch"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = (line.rstrip("\n") for line in process.stdout)
            # The state that it has now: from here on, none is missed.
            seen = [next(lines, "")]

            def read() -> None:
                for line in lines:
                    seen.append(line)  # Each as it comes.

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            try:
                yield seen
            finally:
                process.terminate()
                reader.join()

    def objects(self, kind: str, namespace: str = "", selector: str = "") -> Sequence[Document]:
        """Return the objects of a kind in a namespace."""
        arguments = ["get", kind, "-o", "json"]
        if namespace:
            arguments += ["-n", namespace]
        if selector:
            arguments += ["-l", selector]
        items: Sequence[Document] = json.loads(self.kubectl(*arguments))["items"]
        return items

    def is_ready(self) -> bool:
        """Return whether the API server says that it is ready."""
        return self.run("get", "--raw", "/readyz").returncode == 0

    def _has_account(self) -> bool:
        return self.run("get", "serviceaccount", "default").returncode == 0


def wait_until(what: str, holds: Callable[[], bool], within_s: float) -> None:
    """Wait until `holds()` is true; raise TimeoutError, which names `what`, after `within_s`."""
    end, pause, is_over = time.monotonic() + within_s, threading.Event(), False
    while not holds():
        if is_over:
            raise TimeoutError(f"after {within_s:.0f} s it is not so that {what}")
        pause.wait(PAUSE_S)
        is_over = time.monotonic() > end  # Looked at once more: the machine may have stalled.


def without_skew(text: str) -> str:
    """Return kubectl's output without the warning that kubectl is older than the cluster."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if "WARNING: version difference" not in line)


@contextmanager
def start_cluster(lease_s: int = LEASE_S) -> Iterator[Cluster]:
    """Yield a cluster in a temporary folder, and remove the folder at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="nodepool-kubernetes-") as folder,
        Cluster(Path(folder), lease_s) as cluster,
    ):
        yield cluster
