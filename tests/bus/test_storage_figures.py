"""What alerts on storage need is there with the configuration of the server that is shipped."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.request import urlopen

import yaml

from bus.harness import BINARY, PATIENCE_S, ReplicaProcess, launched, until
from nodepool.auth.folder import AuthFolder
from nodepool.host.provision import prepare
from nodepool.host.settings import Settings
from nodepool.local.server import NatsServer
from nodepool.nats.wire.access import PLACEHOLDER, Access
from testbed.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"


@contextmanager
def shipped(folder: Path, monitor: int) -> Iterator[NatsServer]:
    """A server with `deploy/nats.conf`, on other ports and with another folder, and its streams."""
    port = free_port()
    AuthFolder(folder / "auth").init()
    text = (DEPLOY / "nats.conf").read_text(encoding="utf-8")
    changes = {
        "0.0.0.0:4222": f"127.0.0.1:{port}",
        "0.0.0.0:8222": f"127.0.0.1:{monitor}",
        '"/data"': json.dumps(str(folder / "data")),
    }
    for before, after in changes.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    configuration = folder / "nats.conf"
    configuration.write_text(text, encoding="utf-8")
    with (
        (folder / "nats.log").open("wb") as log,
        subprocess.Popen([BINARY, "--config", configuration], stdout=log, stderr=log) as process,
    ):
        try:
            url = f"nats://127.0.0.1:{port}"
            asyncio.run(prepare(Settings(url, access=Access(nkey_file=key_files(folder)))))
            # A service needs nothing of it but its address.
            yield cast("NatsServer", SimpleNamespace(url=url))
        finally:
            process.terminate()


def key_files(folder: Path) -> str:
    """Where the key of each user is, as a setting names it."""
    return str(AuthFolder(folder / "auth").key_file(PLACEHOLDER))


def of_compose(name: str) -> str:
    """A setting of the services in the compose file."""
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text(encoding="utf-8"))
    value: str = compose["services"]["demo"]["environment"][name]
    return value


def test_the_leader_shows_how_much_is_stored_and_what_the_server_may_store(tmp_path: Path) -> None:
    def shown(replica: ReplicaProcess, name: str) -> float:
        try:
            return replica.metric(f"nodepool_storage_{name}_bytes")
        except OSError:
            return 0

    # given a server as it is shipped, and a service with the settings of the compose file
    monitor, limit = free_port(), of_compose("NODEPOOL_MAX_FILE_STORE")
    with (
        shipped(tmp_path, monitor) as server,
        launched(
            "aggregator",
            server,
            tmp_path,
            free_port(),
            max_file_store=limit,
            nkey_file=key_files(tmp_path),
        ) as replica,
    ):
        # when it leads, then there are both series
        asyncio.run(until(lambda: shown(replica, "used") > 0 and shown(replica, "limit") > 0))

        # and the limit is that of the server
        with urlopen(f"http://127.0.0.1:{monitor}/jsz", timeout=PATIENCE_S) as response:
            assert shown(replica, "limit") == json.load(response)["config"]["max_storage"]
