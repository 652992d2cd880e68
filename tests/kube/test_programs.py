"""The servers with the configuration of the manifests, and a service with its settings, at work."""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kube.manifests import Document, Manifests, overlay, rendered
from kube.test_manifests import (
    configuration,
    container,
    pod,
    provisioner,
    server_files,
    service_settings,
)
from nodepool.auth.folder import AuthFolder
from nodepool.auth.users import new_member
from nodepool.local.binary import find_server
from nodepool.local.ports import HOST
from nodepool.nats.wire.addresses import split_addresses
from nodepool.nats.wire.connection import connect
from support.certificates import OPENSSL, certificates
from testbed.cluster import WITHIN_S, wait_until
from testbed.pages import fetch
from testbed.ports import free_port

GRACE_S = 2
"""`lame_duck_grace_period` of the configuration."""
NONE: Mapping[str, str] = {}
PORTS = ("client", "cluster", "monitor")


@contextmanager
def process(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[None]:
    """A process inside the context; SIGTERM ends it."""
    with log.open("wb") as output:
        running = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield
    finally:
        running.terminate()
        running.wait(WITHIN_S)


@dataclass(frozen=True)
class Servers:
    """Three servers on this machine, each as its Pod would start it.

    manifests: where their configuration is from.
    folder: the root of the files that their Pods, and those of the services, mount.
    ports: what stands for the ports of each.
    """

    manifests: Manifests
    folder: Path
    ports: Sequence[Mapping[str, int]]

    @property
    def is_secured(self) -> bool:
        """Whether they have certificates and users."""
        return (self.folder / "nats-tls").exists()

    def start(self, number: int) -> tuple[Sequence[str], Mapping[str, str], Path]:
        """The command, the environment and the log of one of them."""
        etc = self.folder / f"server-{number}" / "etc"
        for name, text in server_files(self.manifests).items():
            file = etc / "nats" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._here(text, number))
        (etc / "nodepool-accounts").symlink_to(self.folder / "nodepool-accounts")
        command = [str(find_server(None)), "--config", str(etc / "nats" / "nats.conf")]
        return command, {"POD_NAME": f"nats-{number}"}, etc / "log"

    def _here(self, text: str, number: int) -> str:
        """The text with ports and folders of this machine where it has those of the Pod."""
        for name, port in zip(PORTS, ("4222", "6222", "8222"), strict=True):
            text = text.replace(f"0.0.0.0:{port}", f"{HOST}:{self.ports[number][name]}")
        for other, ports in enumerate(self.ports):
            text = text.replace(f"nats-{other}.nats:6222", f"{HOST}:{ports['cluster']}")
        text = text.replace('"/data"', f'"{self.folder / f"data-{number}"}"')
        return text.replace('"/etc/nats-tls/', f'"{self.folder}/nats-tls/')

    def settings(self, own: Mapping[str, str] = NONE) -> Mapping[str, str]:
        """The environment of a service, with addresses and files of this machine."""
        values = {**service_settings(self.manifests), **own}
        for number, ports in enumerate(self.ports):
            at = f"{HOST}:{ports['client']}"
            values["NODEPOOL_URL"] = values["NODEPOOL_URL"].replace(f"nats-{number}.nats:4222", at)
        assert ".nats:" not in values["NODEPOOL_URL"]
        return self._environment(values)

    def beside(self, number: int) -> Mapping[str, str]:
        """The environment of the program beside one of them."""
        values = dict(provisioner(self.manifests.named("StatefulSet", "nats")))
        port = str(self.ports[number]["client"])
        return self._environment(
            {**values, "NODEPOOL_URL": values["NODEPOOL_URL"].replace("4222", port)}
        )

    def _environment(self, values: Mapping[str, str]) -> Mapping[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            **{key: value.replace("/etc/", f"{self.folder}/") for key, value in values.items()},
        }


@contextmanager
def started(manifests: Manifests, folder: Path) -> Iterator[Servers]:
    """Three servers inside the context, each with the program that prepares it."""
    count = manifests.named("StatefulSet", "nats")["spec"]["replicas"]
    ports = [{name: free_port() for name in PORTS} for _ in range(count)]
    servers = Servers(manifests, folder, ports)
    with ExitStack() as stack:
        for number in range(count):
            stack.enter_context(process(*servers.start(number)))
            command = [sys.executable, "-m", "nodepool.host.provision"]
            log = folder / f"beside-{number}.log"
            stack.enter_context(process(command, servers.beside(number), log))
        yield servers


def with_identities(folder: Path) -> AuthFolder:
    """The identities of an installation, as files where the Pods mount the Secrets with them."""
    auth = AuthFolder(folder / "auth")
    auth.init()
    (folder / "nodepool-accounts").mkdir()
    mount(auth, folder)
    (folder / "nodepool-keys").symlink_to(auth.path / "keys")
    (folder / "nodepool-members").symlink_to(auth.path)
    return auth


def mount(auth: AuthFolder, folder: Path) -> None:
    """Has the Pods see the accounts as they are now, as a kubelet does some time after a change."""
    shutil.copy(auth.accounts_file, folder / "nodepool-accounts" / "accounts.conf")


def secured(folder: Path) -> Manifests:
    """The manifests with the component `secured`, and the Secrets that it asks for as files."""
    for name in ("authority", "nats-tls", "nodepool"):
        (folder / name).mkdir()
    made = certificates(folder / "authority")
    shutil.copy(made.certificate, folder / "nats-tls" / "tls.crt")
    shutil.copy(made.key, folder / "nats-tls" / "tls.key")
    shutil.copy(made.ca, folder / "nats-tls" / "ca.crt")
    shutil.copy(made.ca, folder / "nodepool" / "ca.crt")
    return rendered(overlay(folder / "overlay", "secured"))


@pytest.fixture(scope="module", params=["plain", "secured"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    """The servers of the manifests as they are, and with TLS."""
    folder = tmp_path_factory.mktemp(request.param)
    with_identities(folder)
    if request.param == "secured" and OPENSSL is None:
        pytest.skip("openssl is not on PATH")
    manifests = secured(folder) if request.param == "secured" else rendered()
    with started(manifests, folder) as servers:
        yield servers


def status(url: str) -> int:
    """The status of an HTTP response; 0 where there is none."""
    try:
        return fetch(url, timeout_s=2)[0]
    except OSError:
        return 0


def probes(workload: Document) -> Sequence[str]:
    """The paths that the probes of a workload ask for."""
    only = container(workload)
    return [only[name]["httpGet"]["path"] for name in only if name.endswith("Probe")]


def test_three_servers_find_each_other_and_their_probes_pass(servers: Servers) -> None:
    paths = probes(servers.manifests.named("StatefulSet", "nats"))
    urls = [f"http://{HOST}:{own['monitor']}{path}" for own in servers.ports for path in paths]

    assert len(urls) == 9
    wait_until("each probe passes", lambda: {status(url) for url in urls} == {200}, WITHIN_S)


@pytest.mark.parametrize("name", ["quota", "gateway"])
def test_a_service_with_the_settings_of_the_manifests_becomes_ready(
    servers: Servers, tmp_path: Path, name: str
) -> None:
    port = free_port()
    deployment = servers.manifests.named("Deployment", f"nodepool-{name}")
    own = {each["name"]: each["value"] for each in container(deployment).get("env", ())}
    environment = {
        **servers.settings(own),
        "NODEPOOL_METRICS_HOST": HOST,
        "NODEPOOL_METRICS_PORT": str(port),
    }
    urls = [f"http://{HOST}:{port}{path}" for path in probes(deployment)]

    with process([sys.executable, *container(deployment)["args"]], environment, tmp_path / "log"):
        wait_until("both probes pass", lambda: {status(url) for url in urls} == {200}, WITHIN_S)


def info(port: int) -> Mapping[str, object]:
    """What a server says to a client that connects."""
    with socket.create_connection((HOST, port), timeout=WITHIN_S) as connection:
        line = connection.makefile("rb").readline()
    fields: Mapping[str, object] = json.loads(line.removeprefix(b"INFO "))
    return fields


def test_a_client_is_asked_for_a_key_and_for_tls_where_it_is_secured(servers: Servers) -> None:
    wait_until("a server responds", lambda: status(monitor(servers)) == 200, WITHIN_S)

    asked = info(servers.ports[0]["client"])

    expected = servers.is_secured or None
    assert (asked.get("auth_required"), asked.get("tls_required")) == (True, expected)


def monitor(servers: Servers) -> str:
    return f"http://{HOST}:{servers.ports[0]['monitor']}/healthz"


def test_a_server_whose_pod_is_ended_has_its_clients_leave_first(
    manifests: Manifests, tmp_path: Path
) -> None:
    # given a server with the times of the manifests, and a client
    file, log, port = tmp_path / "nats.conf", tmp_path / "log", free_port()
    times = "\n".join(re.findall("(?m)^lame_duck_.*$", configuration(manifests)))
    file.write_text(f'listen: "{HOST}:{port}"\n{times}\n')
    with log.open("wb") as output:
        server = subprocess.Popen([find_server(None), "--config", file], stderr=output)
    wait_until("it is ready", lambda: b"Server is ready" in log.read_bytes(), WITHIN_S)
    with socket.create_connection((HOST, port), timeout=WITHIN_S) as client:
        client.sendall(b'CONNECT {"protocol":1,"verbose":false}\r\nPING\r\n')
        lines = client.makefile("rb")
        assert any(line == b"PONG\r\n" for line in iter(lines.readline, b""))

        # when its Pod is ended: first the hook, then SIGTERM
        stateful_set = manifests.named("StatefulSet", "nats")
        hook = container(stateful_set)["lifecycle"]["preStop"]["exec"]["command"]
        assert hook == ["nats-server", "--signal", "ldm=1"], "1 is the server's process in its Pod"
        asked = time.monotonic()
        subprocess.run([find_server(None), "--signal", f"ldm={server.pid}"], check=True)
        wait_until("it heard that", lambda: b"lame duck" in log.read_bytes(), WITHIN_S)
        server.terminate()

        # then the client is asked to leave, and has the time for it
        heard = [*iter(lines.readline, b"")]
        assert any(line.startswith(b"INFO") and b'"ldm":true' in line for line in heard)
        assert time.monotonic() - asked > GRACE_S / 2

    # and the server ends by itself within the time of its Pod
    assert server.wait(pod(stateful_set)["terminationGracePeriodSeconds"]) == 0


def test_what_a_pod_reads_is_mounted_there(servers: Servers) -> None:
    mounted = {
        name: {item["mountPath"] for item in container(workload).get("volumeMounts", ())}
        for name, workload in (
            ("server", servers.manifests.named("StatefulSet", "nats")),
            ("service", servers.manifests.named("Deployment", "nodepool-quota")),
        )
    }

    more = {"/etc/nats-tls"} if servers.is_secured else set()
    assert mounted["server"] == {"/data", "/etc/nats", "/etc/nodepool-accounts", *more}
    more = {"/etc/nodepool"} if servers.is_secured else set()
    assert mounted["service"] == {"/etc/nodepool-keys", *more}


def test_a_user_who_is_added_comes_in_at_each_server_and_none_is_restarted(
    servers: Servers,
) -> None:
    # given an organisation and a user that are added, and the Secret with them
    auth = AuthFolder(servers.folder / "auth")
    auth.change(lambda users: users.with_organisation("acme"))
    auth.add_member("acme", lambda key: new_member("alice", key, "viewer"))
    url = servers.settings()["NODEPOOL_URL"]
    ca = str(servers.folder / "nodepool" / "ca.crt") if servers.is_secured else ""
    shown = replace(auth.access("alice", "acme"), ca_file=ca)

    async def comes_in(address: str) -> None:
        connection = await connect(address, "alice", patience_s=WITHIN_S, access=shown)
        await connection.close()

    # when the kubelets see it
    mount(auth, servers.folder)

    # then the user comes in at each server
    for address in split_addresses(url):
        asyncio.run(comes_in(address))
