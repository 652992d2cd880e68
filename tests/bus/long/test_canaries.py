"""Secrets stay secret in whole runs."""

import asyncio
import json
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from bus import tls
from bus.canaries import (
    PASSWORD,
    TOKEN,
    Canaries,
    file_with,
    processes,
)
from bus.cli import H100, MANIFEST, environment
from bus.harness import launched, until
from bus.test_canaries import PATIENCE_S, commands
from nodepool.auth.folder import AuthFolder
from nodepool.cli.app import run
from support.certificates import Certificates, certificates, needs_openssl
from support.nats_users import key
from testbed.pages import fetch
from testbed.ports import free_port

STARTED = "Ctrl-C stops everything"
VERBS = (
    "apply -f {folder}/training.yaml",
    "get nodepools -o yaml",
    "describe nodepool training",
    "scale nodepool training --target 12",
    "scale nodepool nowhere --target 1",
    f"set quota nowhere {H100} 5",
    "explain nodepool training",
    "events",
    "audit --since 1h",
    "audit --usage",
    "doctor",
    "doctor -o json",
    "version -o json",
    "apply -f /nowhere.yaml",
    "get nonsense",
)
AUTH_VERBS = (
    "init",
    "list",
    "can-i scale nodepool --as acme/alice",
    "can-i subscribe np.evt.> --as quota",
    "add-user acme carol --role viewer",
    "add-user acme carol --role viewer",
    "add-user acme dave --role editor --password",
    "rotate acme carol",
    "rotate acme dave",
    "rotate quota",
    "revoke acme carol",
    "revoke quota",
    "rotate nobody",
)


@contextmanager
def control_plane(folder: Path, output: Path, port: int) -> Iterator[int]:
    """`nodepool up` that prints its spans, with a password in an address that it has no use for."""
    others = {
        "NODEPOOL_URL": f"nats://me:{PASSWORD}@127.0.0.1:{port}",
        "NODEPOOL_TRACES": "console",
        "NODEPOOL_LOG_LEVEL": "debug",
    }
    with (
        output.open("wb") as sink,
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "nodepool.cli",
                "up",
                "--data-dir",
                str(folder),
                "--listen",
                "0.0.0.0",
            ],
            env={**environment(port), **others},
            stdout=sink,
            stderr=sink,
        ) as process,
    ):
        try:
            yield process.pid
        finally:
            process.terminate()


def written_in(folder: Path) -> dict[str, str]:
    """The text of every file in a folder but those that hold secrets, the stored log included."""
    return {
        str(path): path.read_text(errors="replace")
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".nk", ".key", ".password")
    }


async def test_nothing_that_a_whole_run_writes_has_a_secret_in_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given an organisation with a user, and a control plane that prints all it can
    canaries, port, output = Canaries(), free_port(), tmp_path / "output.txt"
    data, auth = tmp_path / "data", AuthFolder(tmp_path / "data" / "auth")
    canaries.plant("password", PASSWORD)
    where = ("--dir", str(auth.path))
    for line in ("init", "add-organisation acme", "add-user acme alice --role editor"):
        assert run(["auth", *line.split(), *where]) == 0
    canaries.plant_folder(auth)
    with control_plane(data, output, port) as pid:
        await until(lambda: STARTED in output.read_text(), PATIENCE_S)

        # when commands of the operator and of the user are done and refused
        url = f"nats://127.0.0.1:{port}"
        (tmp_path / "training.yaml").write_text(
            MANIFEST.format(name="training", type=H100, target=2)
        )
        verbs = [line.format(folder=tmp_path) for line in VERBS]
        written = await asyncio.to_thread(commands, verbs, capfd, "--url", url)
        monkeypatch.setenv("NODEPOOL_CA_FILE", str(data / "tls" / "ca.pem"))
        monkeypatch.setenv("NODEPOOL_NKEY_FILE", str(auth.key_file("alice", "acme")))
        written |= await asyncio.to_thread(commands, verbs, capfd, "--url", url)
        written |= processes(pid)

        for name in ("ca.key", "server.key"):
            canaries.plant_key(data / "tls" / name)

        # and identities come and go
        lines = [f"{line} --dir {auth.path}" for line in AUTH_VERBS]
        canaries.plant_folder(auth)
        written |= await asyncio.to_thread(commands, lines, capfd, "auth")
        canaries.plant_folder(auth)

        # and a user works who has a password
        monkeypatch.delenv("NODEPOOL_NKEY_FILE")
        monkeypatch.setenv("NODEPOOL_PASSWORD_FILE", str(auth.path / "keys/acme/dave.password"))
        url = f"nats://acme.dave@127.0.0.1:{port}"
        shown = await asyncio.to_thread(commands, verbs, capfd, "--url", url)
        assert "acme/dave" in shown["audit --since 1h (exit code 0)"]
        written |= {f"dave: {line}": text for line, text in shown.items()}

        # and the pages of every process are read
        addresses = re.findall(r"http://\S+(?=/metrics)", output.read_text())
        for address in addresses:
            for name in ("metrics", "readyz"):
                written[f"{address}/{name}"] = fetch(f"{address}/{name}", PATIENCE_S)[1]

    # then no secret is in any output, log, span, page, command line, environment or stored message
    assert len(addresses) == 3
    stored = written_in(tmp_path)
    assert any('"trace_id"' in text for path, text in stored.items() if path.endswith(".err"))
    assert not canaries.found_in(written | stored)


@needs_openssl
async def test_no_service_writes_what_a_server_refuses(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # given a server that knows one password, and services whose metrics are protected
    canaries, port = Canaries(), free_port()
    canaries.plant("password", PASSWORD)
    canaries.plant("token", TOKEN)
    canaries.plant_seed("seed", key("user", 7).seed)
    made = certificates(tmp_path)
    canaries.plant_key(made.key)
    protected = {
        "METRICS_CERT_FILE": str(made.certificate),
        "METRICS_KEY_FILE": str(made.key),
        "METRICS_TOKEN_FILE": file_with(tmp_path / "token", TOKEN),
    }
    shown: Sequence[tuple[str, dict[str, str]]] = (
        (f"me:{PASSWORD}@", {}),
        (f"{TOKEN}@", {}),
        ("me@", {"PASSWORD_FILE": file_with(tmp_path / "password.txt", PASSWORD)}),
        ("", {"NKEY_FILE": file_with(tmp_path / "own.nk", key("user", 7).seed)}),
    )
    written = dict[str, str]()
    with tls.running(tmp_path, port, 'authorization { user: "me", password: "other" }'):
        for number, (who, files) in enumerate(shown):
            # when a service and the command line come with another one, or with a seed
            url = f"nats://{who}{tls.HOST}:{port}"
            folder = tmp_path / f"service-{number}"
            folder.mkdir()
            port_of_pages = free_port()
            loud = {"NODEPOOL_TRACES": "console", "NODEPOOL_LOG_LEVEL": "debug"}
            loud |= {f"NODEPOOL_{name}": path for name, path in (files | protected).items()}
            with launched("quota", _At(url), folder, port_of_pages, others=loud) as replica:
                await until(
                    lambda own=replica: own.log.exists() and "refuses" in own.log.read_text()
                )
                for path in ("/metrics", "/readyz"):
                    written[f"{number} {path}"] = _page(made, port_of_pages, path)
                written[f"{number} cmdline"] = _command_line(replica.pid)
            with pytest.MonkeyPatch.context() as patch:
                for name, path in files.items():
                    patch.setenv(f"NODEPOOL_{name}", path)
                lines = ("get nodepools --request-timeout 2s", "doctor")
                said = await asyncio.to_thread(commands, lines, capfd, "--url", url)
            written |= {f"{number} {line}": text for line, text in said.items()}
            written |= written_in(folder)

    # then the secret is in no log, page, span, error or command line
    written["server"] = (tmp_path / f"{port}.log").read_text()
    assert "nodepool_" in written["0 /metrics"]
    assert "refuses" in json.dumps(written)
    assert not canaries.found_in(written)


def _page(made: Certificates, port: int, path: str) -> str:
    """A page that is read with the token."""
    context = ssl.create_default_context(cafile=str(made.ca))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    connection = HTTPSConnection(tls.HOST, port, timeout=PATIENCE_S, context=context)
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


class _At:
    """A server by its address."""

    def __init__(self, url: str) -> None:
        self.url = url
