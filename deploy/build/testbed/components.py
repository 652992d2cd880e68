"""The parts of a Kubernetes control plane as processes on the loopback."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodepool.local.guard import Guard
from nodepool.local.ports import HOST

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodepool" / "kubernetes"
"""Where `make testbed` puts the programs."""
END_S = 20.0
"""How long a part may take to end, in seconds, before it is killed."""
API_SERVER_END_S = 2.0
"""The same of the API server, which would await the end of each watch."""
ETCD, API_SERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER, KWOK = "kube-controller-manager", "kube-scheduler", "kwok"
PARTS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
"""In the order in which they start."""
STAGES = Path(__file__).parent / "stages"
"""What kwok does with a Pod, where that differs from what comes with it."""
AUDIT_LOG = "audit.log"
ETCD_DATA = "etcd-data"

TOKENS = {
    "admin": "system:masters",
    "kubelets": "system:masters",
    CONTROLLER_MANAGER: "system:masters",
    SCHEDULER: "system:masters",
    KWOK: "system:masters",
    "user": "customers",
}
"""The users, each with the group that it is in; its token is its name."""
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
"""
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "{server}", insecure-skip-tls-verify: true}}}}]
users: [{{name: "{user}", user: {{token: "{token}"}}}}]
contexts: [{{name: test, context: {{cluster: test, user: "{user}"}}}}]
current-context: test
"""


def missing() -> str:
    """Return why no cluster can be started, as one line; empty where one can."""
    for program in ("kubectl", "openssl"):
        if shutil.which(program) is None:
            return f"{program} is not on PATH"
    if not (CACHE / "testbed").exists() or not (CACHE / "kwok").exists():
        return "there is no Kubernetes to test against; `make testbed` builds one, with Go 1.26"
    return ""


def command(part: str) -> Sequence[str]:
    """How a part is called.

    etcd and the API server are those of KUBEBUILDER_ASSETS where it has both, as
    https://book.kubebuilder.io/reference/envtest has it.
    """
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or os.devnull)
    given = (ETCD, API_SERVER)
    if part in given and all((assets / program).is_file() for program in given):
        return [str(assets / part)]
    return [str(CACHE / KWOK)] if part == KWOK else [str(CACHE / "testbed"), part]


class Process:
    """A process that can be stopped and started again; its output is appended to a log."""

    def __init__(self, command: Sequence[str], folder: Path, name: str) -> None:
        self._command = command
        self._end_s = API_SERVER_END_S if name == API_SERVER else END_S
        self._folder = folder
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    @property
    def is_running(self) -> bool:
        """Return whether it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None, "it has not been started"
        return self._process.pid

    def start(self) -> None:
        """Start the part, unless the part is running."""
        if self.is_running:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C at the terminal is for the test, which then stops this itself.
                start_new_session=True,
            )
        self._dismiss()
        # Where this process is killed, so is what does not heed SIGTERM: an API server would await
        # the end of watches that nobody ends.
        self._guard = Guard(self._process.pid, group_grace_s=round(self._end_s))

    def stop(self) -> None:
        """End the part with SIGTERM, and return once the part has ended and its port is free."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(self._end_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._dismiss()

    def kill(self) -> None:
        """End the part with SIGKILL, and return once the part has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._dismiss()

    def _dismiss(self) -> None:
        if self._guard is not None:
            self._guard.dismiss()
        self._guard = None


def flags(part: str, ports: Mapping[str, int], lease_s: int) -> Sequence[str]:
    """Return the flags of a part.

    ports: the ports of etcd, its peers, the API server and kwok.
    lease_s: how long a Node's lease is valid, in seconds; if the kubelet is silent for 1.5 times
      as long, the Node is no longer Ready.
    """
    if part == ETCD:
        return _etcd(f"http://{HOST}:{ports[ETCD]}", f"http://{HOST}:{ports['peer']}")
    if part == API_SERVER:
        return _api_server(f"http://{HOST}:{ports[ETCD]}", ports[API_SERVER])
    if part == KWOK:
        return _kwok(ports[KWOK], lease_s)
    return _controller_manager(lease_s) if part == CONTROLLER_MANAGER else _client(part)


def _etcd(client: str, peer: str) -> Sequence[str]:
    return (
        f"--data-dir={ETCD_DATA}",
        "--unsafe-no-fsync",
        "--log-level=error",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    )


def _api_server(etcd: str, port: int) -> Sequence[str]:
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
        "--audit-policy-file=audit-policy.yaml",
        f"--audit-log-path={AUDIT_LOG}",
        # In MB, after which another file begins; one file is easier to read.
        "--audit-log-maxsize=4000",
    )


def _client(part: str) -> Sequence[str]:
    return (
        f"--kubeconfig={part}.kubeconfig",
        f"--authentication-kubeconfig={part}.kubeconfig",
        f"--authorization-kubeconfig={part}.kubeconfig",
        "--secure-port=0",
        "--leader-elect=false",
    )


def _controller_manager(lease_s: int) -> Sequence[str]:
    return (
        *_client(CONTROLLER_MANAGER),
        "--service-account-private-key-file=accounts.key",
        "--controllers=*,-nodeipam,-service-lb-controller",
        f"--node-monitor-grace-period={lease_s * 3 // 2}s",
        "--node-monitor-period=1s",
    )


def _kwok(port: int, lease_s: int) -> Sequence[str]:
    ours = {path.name: path for path in STAGES.glob("*.yaml")}
    stages = {path.name: path for path in (CACHE / "stages").glob("*.yaml")} | ours
    return (
        f"--kubeconfig={KWOK}.kubeconfig",
        # It would pass over a Node that gets an annotation only after it was created.
        "--manage-all-nodes=true",
        # A lease is renewed four times in its duration.
        f"--node-lease-duration-seconds={lease_s}",
        f"--server-address={HOST}:{port}",
        *(f"--config={path}" for _, path in sorted(stages.items())),
    )


def write_files(folder: Path, port: int) -> None:
    """Write the key of service accounts, the users, a kubeconfig per user, and the audit policy."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ["openssl", "genrsa", "-out", "accounts.key", "2048"]
    subprocess.run(key, cwd=folder, check=True, capture_output=True)
    lines = (f'{name},{name},{name},"{group}"\n' for name, group in TOKENS.items())
    (folder / "tokens.csv").write_text("".join(lines))
    (folder / "audit-policy.yaml").write_text(AUDIT_POLICY)
    for name in TOKENS:
        write_kubeconfig(folder / f"{name}.kubeconfig", name, name, port)


def write_kubeconfig(path: Path, user: str, token: str, port: int) -> None:
    """Write the kubeconfig of a user for the API server at this port of the loopback address."""
    server = f"https://{HOST}:{port}"
    path.write_text(KUBECONFIG.format(server=server, user=user, token=token))
    path.chmod(0o600)
