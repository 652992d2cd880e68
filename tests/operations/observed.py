"""A control plane as real processes, and a real Prometheus that watches it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Final, NamedTuple

from bus.harness import BINARY, ReplicaProcess, launched, until
from containers.nats_exporter import serve
from nodepool.contract.services import SERVICES
from nodepool.local.ports import HOST
from nodepool.local.server import NatsServer
from support.prometheus import DEPLOY, Prometheus, config, program, prometheus
from testbed.ports import free_port

REPLICATED: Final = ("quota", "preemption", "aggregator")
"""The services with two replicas: one decides for users, two count in their states."""
STORAGE: Final = 1024**3
"""What the services may store on the server, in bytes."""
PATIENCE_S = 120.0
"""How long anything may take on a machine that has much else to do."""
INTERVAL = "1s"
"""How often Prometheus reads metrics."""
SILENT_S = "1"
"""For how many seconds a machine is silent until its Node gets Ready=Unknown."""


class LimitedServer(NatsServer):
    """A server on which the services have an account with a limit."""

    def _write_config(self, *, enabled: bool) -> Path:
        file = super()._write_config(enabled=enabled)
        account = (
            f"jetstream: {{ max_file: {STORAGE} }}, users: [{{ user: services, password: x }}]"
        )
        with file.open("a", encoding="utf-8") as config:
            config.write(f"accounts {{ nodepool: {{ {account} }} }}\nno_auth_user: services\n")
        return file


class Observed(NamedTuple):
    """A control plane and the Prometheus that watches it."""

    server: NatsServer
    replicas: Sequence[ReplicaProcess]
    addresses: Sequence[str]
    prometheus: Prometheus

    @property
    def running(self) -> Sequence[ReplicaProcess]:
        """The replicas that were not killed."""
        return [each for each in self.replicas if each.process.poll() is None]

    def is_ready(self) -> bool:
        """Whether each running replica is."""
        return all(each.is_ready() for each in self.running)

    def total(self, metric: str) -> float:
        """The sum of a metric over all running replicas and all its labels."""
        return sum(each.metric(metric) for each in self.running)

    async def kill_leader(self, service: str) -> None:
        """Kills the replica that leads a service of `REPLICATED`, once there is one."""

        def leads(replica: ReplicaProcess) -> bool:
            name = f'nodepool_leading{{nodepool_service="{service}"}}'
            return replica.metric(name) == 1

        await until(lambda: any(map(leads, self.running)), PATIENCE_S)
        leader = next(filter(leads, self.running))
        leader.process.kill()
        leader.process.wait()


@contextmanager
def exported(address: str) -> Iterator[str]:
    """Show the figures of a server, as its exporter does; give the address of the metrics."""
    with serve({"nats": address}, HOST, 0) as exporter:
        Thread(target=exporter.serve_forever, daemon=True).start()
        yield f"{HOST}:{exporter.server_port}"
        exporter.shutdown()


def with_rules(folder: Path) -> Mapping[str, object]:
    """Return the option for the rules of this repository, all evaluated at `INTERVAL`."""
    text = (DEPLOY / "prometheus" / "nodepool.rules.yml").read_text("utf-8")
    file = folder / "nodepool.rules.yml"
    file.write_text(re.sub(r"(?m)^    interval: .*\n", "", text), "utf-8")
    return {"rule_files": [str(file)]}


@contextmanager
def observed(folder: Path) -> Iterator[Observed]:
    """A control plane, with two replicas of some services, and a Prometheus that watches it."""
    program()
    with ExitStack() as stack:
        monitor = free_port()
        server = stack.enter_context(
            LimitedServer(folder / "nats", free_port(), BINARY, monitor_port=monitor)
        )
        exporter = stack.enter_context(exported(f"http://{HOST}:{monitor}"))
        targets, replicas = {}, []
        for name in (*SERVICES, *REPLICATED):
            port = free_port()
            replica = launched(name, server, folder, port, silent_seconds=SILENT_S)
            replicas.append(stack.enter_context(replica))
            targets[f"{HOST}:{port}"] = name
        file = folder / "prometheus.yml"
        file.write_text(json.dumps({**config(targets, INTERVAL, exporter), **with_rules(folder)}))
        options = (
            f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.user-assets={DEPLOY / 'runbooks'}",
            "--enable-feature=exemplar-storage",
        )
        running = stack.enter_context(prometheus(folder, *options))
        yield Observed(server, replicas, list(targets), running)
