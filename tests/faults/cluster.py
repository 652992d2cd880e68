"""Three nats-servers as one cluster on the loopback address, which keeps three copies of a log."""

import json
from pathlib import Path

from faults.processes import Process
from nodepool.local.config import MAX_PAYLOAD
from nodepool.local.ports import HOST
from testbed.ports import free_port

SIZE = 3
"""How many servers; two of them are enough to store anything."""
MEMORY = "512MiB"
"""What the Go runtime of a server tries to stay below."""


class Cluster:
    """The servers, each a process with its data in a folder of its own."""

    def __init__(self, folder: Path, binary: Path) -> None:
        ports = [free_port() for _ in range(SIZE)]
        routes = [free_port() for _ in range(SIZE)]
        self.url = ",".join(f"nats://{HOST}:{port}" for port in ports)
        self.servers = []
        self.stores: list[Path] = []
        for number, (port, route) in enumerate(zip(ports, routes, strict=True)):
            home = folder / f"server-{number}"
            home.mkdir(parents=True)
            self.stores.append(home / "jetstream")
            config = home / "nats-server.conf"
            text = _config(f"s{number}", home, port, route, routes)
            config.write_text(text, encoding="utf-8")
            command = [str(binary), "--config", str(config)]
            environment = {"GOMEMLIMIT": MEMORY}
            self.servers.append(
                Process(f"server-{number}", command, home / "server.log", environment)
            )


def _config(name: str, home: Path, port: int, route: int, routes: list[int]) -> str:
    others = ", ".join(f'"nats://{HOST}:{other}"' for other in routes if other != route)
    return f"""server_name: {name}
listen: "{HOST}:{port}"
max_payload: {MAX_PAYLOAD}
cluster {{
  name: faults
  listen: "{HOST}:{route}"
  routes: [{others}]
}}
jetstream {{
  store_dir: {json.dumps(str(home))}
  sync_interval: always
  max_memory_store: 64MiB
  max_file_store: 2GiB
}}
"""
