"""The whole control plane as real processes, each of which is started again when it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from nodepool.auth.accounts import GATEWAY, OPERATOR, PROVISIONER
from nodepool.auth.users import Users, new_member
from nodepool.contract.services import PROCESSES, SERVICES
from nodepool.local.binary import find_server
from nodepool.local.identities import make_streams
from nodepool.local.server import NatsServer
from nodepool.nats.wire.access import NO_ACCESS, PLACEHOLDER, Access
from testbed.ports import free_port

NO_SETTINGS: Mapping[str, str] = {}
OWNER = "owner"
"""The name and the role of the user of each organisation."""


class ControlPlane:
    """A nats-server and replicas of every service; a process that ends is started again.

    settings: the variables of the environment that each service has as well.
    processes: in how many processes the services of one set of replicas run; a key of PROCESSES.
    program: runs the services whose names it is given.
    organisations: if there are any, the server has accounts, each organisation has an owner, and
        as many replicas of the gateway run too.
    """

    def __init__(
        self,
        folder: Path,
        replicas: int = 1,
        settings: Mapping[str, str] = NO_SETTINGS,
        *,
        processes: int = len(SERVICES),
        program: str = "nodepool.host",
        organisations: Sequence[str] = (),
    ) -> None:
        self.server = NatsServer(
            folder / "nats", free_port(), find_server(None), has_accounts=bool(organisations)
        )
        self._organisations = organisations
        self._folder, self._settings, self._program = folder, settings, program
        groups = ["+".join(group) for group in PROCESSES[processes]]
        groups += [GATEWAY] if organisations else []
        self._names = [f"{group}.{number}" for group in groups for number in range(replicas)]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lifeline = -1, -1
        self._stopping, self._may_run = threading.Event(), threading.Event()
        self._may_run.set()
        self._supervisors: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._let_in()
        self.server.start()
        if self._organisations:
            asyncio.run(make_streams(self.server.url, self.server.access(PROVISIONER)))
        # Services end with this process, however it ends: then nothing holds the other end open.
        self._lifeline = os.pipe()
        for name in self._names:
            self._start(name)
            supervisor = threading.Thread(target=self._supervise, args=(name,), daemon=True)
            supervisor.start()
            self._supervisors.append(supervisor)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._may_run.set()
        for process in self._processes.values():
            process.terminate()
        for supervisor in self._supervisors:
            supervisor.join(15)
        for process in self._processes.values():
            process.kill()
            process.wait()
        for end in self._lifeline:
            os.close(end)
        self.server.stop()

    @property
    def names(self) -> Sequence[str]:
        """The names of all processes: their services joined by +, a dot, and a number."""
        return self._names

    def pids(self) -> Sequence[int]:
        """Those of all processes that run now, the server's first."""
        server = self.server.pid
        services = (process.pid for process in self._processes.values() if process.poll() is None)
        return [*([server] if server is not None else []), *services]

    def pid(self, name: str) -> int:
        """Return the id of a process by its name."""
        return self._processes[name].pid

    def access(self, org: str = "") -> Access:
        """Return what the owner of an organisation shows to the server, or the operator."""
        if not self._organisations:
            return NO_ACCESS
        return self.server.auth.access(OWNER if org else OPERATOR, org)

    def _let_in(self) -> None:
        auth = self.server.auth
        if not self._organisations or auth.users_file.exists():
            return
        auth.init()
        for org in self._organisations:
            auth.change(partial(Users.with_organisation, name=org))
            auth.add_member(org, lambda key: new_member(OWNER, key, OWNER))

    def _identity(self) -> Mapping[str, str]:
        """Return the variables by which each process shows its own key."""
        auth = self.server.auth
        own = {
            "NODEPOOL_NKEY_FILE": str(auth.key_file(PLACEHOLDER)),
            "NODEPOOL_MEMBERS_FILE": str(auth.members_file),
        }
        return own if self._organisations else {}

    def _start(self, name: str) -> None:
        group, _, number = name.rpartition(".")
        services = group.split("+")
        log = self._folder / f"{{service}}.{number}.log"
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NODEPOOL_URL": self.server.url,
            "NODEPOOL_LOG_FILE": str(log),
            "NODEPOOL_STOP_WITH_PARENT": "yes",
            **self._identity(),
            **self._settings,
        }
        module = [GATEWAY] if group == GATEWAY else [self._program, *services]
        with (self._folder / f"{name}.err").open("ab") as errors:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", *module],
                env=environment,
                stdin=self._lifeline[0],
                stderr=errors,
                # Ctrl-C at the terminal is for this process, which then stops them itself.
                start_new_session=True,
            )

    def _supervise(self, name: str) -> None:
        while not self._stopping.is_set():
            self._processes[name].wait()
            self._may_run.wait()
            if not self._stopping.is_set():
                self._start(name)

    def kill(self, name: str) -> None:
        """Send SIGKILL to a replica, which is then started again."""
        self._processes[name].send_signal(signal.SIGKILL)

    @contextmanager
    def pause_services(self) -> Iterator[None]:
        """No service runs until the context ends; the server does."""
        self._may_run.clear()
        try:
            for process in self._processes.values():
                process.terminate()
                process.wait()
            yield
        finally:
            self._may_run.set()

    def kill_server(self) -> None:
        """Send SIGKILL to the nats-server, and start another nats-server on its data."""
        self.server.kill()
        self.server.start()

    def errors(self) -> str:
        """Return the standard error of the services, which is empty unless a service crashed."""
        return "".join(path.read_text() for path in sorted(self._folder.glob("*.err")))
