"""Starting, watching and stopping a nats-server on this machine."""

import errno
import json
import re
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from nodepool.auth.folder import AuthFolder
from nodepool.auth.users import AuthError
from nodepool.local.config import server_config
from nodepool.local.directory_lock import DirectoryLock
from nodepool.local.errors import ServerError
from nodepool.local.guard import Guard, environment_without_settings
from nodepool.local.identities import move_to_platform
from nodepool.local.ports import HOST

POLL_S = 0.02
STOP_S = 10.0
"""How long the server may take to stop gracefully, in seconds, before it is killed."""


class NatsServer:
    """A nats-server that listens on the loopback address and keeps its data in one directory.

    has_accounts: whether only users of the folder `auth` may connect; they are made at the start.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int,
        binary: Path,
        *,
        monitor_port: int | None = None,
        has_accounts: bool = False,
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._port = port
        self._binary = binary
        self._monitor_port = monitor_port
        self._has_accounts = has_accounts
        self._lock: DirectoryLock | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._name = ""
        self._guard: Guard | None = None

    @property
    def url(self) -> str:
        """The address to which clients connect."""
        return f"nats://{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The id of the server's process; None while it does not run."""
        return self._process.pid if self._process and self.running else None

    @property
    def running(self) -> bool:
        """Return whether the server's process is alive."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self._dismiss_guard()
        return False

    @property
    def data_dir(self) -> Path:
        """The folder with all data that the server stores."""
        return self._data_dir

    @property
    def auth(self) -> AuthFolder:
        """The folder with the users of a server that has accounts."""
        return AuthFolder(self._data_dir / "auth")

    @property
    def log_file(self) -> Path:
        """The file to which the server writes its log."""
        return self._data_dir / "nats-server.log"

    def start(self, timeout_s: float = 10) -> None:
        """Start the server; return once clients can connect and JetStream is ready.

        Does nothing if the server runs. Raises `ServerError` if the server cannot be started, or is
        not ready within `timeout_s` seconds.
        """
        if self.running:
            return
        self._clean_up()
        self._check_ports()
        deadline = time.monotonic() + timeout_s
        try:
            self._launch(deadline)
        except AuthError as error:
            self.kill()
            raise ServerError(str(error)) from error
        except OSError as error:
            self.kill()
            raise _cannot_write(self._data_dir, error) from error
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop the server gracefully; kill the server if that takes more than `STOP_S` seconds."""
        if self._process is not None:
            self._dismiss_guard()
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._clean_up()

    def kill(self) -> None:
        """End the server as a crash does: with SIGKILL."""
        if self._process is not None:
            self._process.kill()
        self._clean_up()

    def restart_storage(self, timeout_s: float = 10) -> None:
        """Make the running server stop its storage and start it again from the data on the disk.

        Clients stay connected. Raises `ServerError` if that is not done within `timeout_s`
        seconds.
        """
        deadline = time.monotonic() + timeout_s
        for enabled in (False, True):
            try:
                self._write_config(enabled=enabled)
            except OSError as error:
                raise _cannot_write(self._data_dir, error) from error
            if self._process is not None and self.running:
                self._process.send_signal(signal.SIGHUP)
            self._wait_for_storage(deadline, enabled=enabled)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _check_ports(self) -> None:
        for port in (self._port, self._monitor_port):
            if port is not None and not 1 <= port <= 65535:
                raise ServerError(f"{port} is not a port: choose one from 1 to 65535")

    def _launch(self, deadline: float) -> None:
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(self._data_dir)
        self._lock.acquire(deadline)
        if self._has_accounts:
            self.auth.init()
            move_to_platform(self._data_dir)
        # Each start gets a new name, to tell this server from any other server on the same port.
        self._name = f"nodepool-{secrets.token_hex(4)}"
        conf = self._write_config(enabled=True)
        log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._process = self._spawn(conf, self._lock.descriptor)
        self._guard = Guard(self._process.pid)
        self._lock.note(server=self._process.pid)
        self._wait_until_ready(deadline, log_start)

    def _write_config(self, *, enabled: bool) -> Path:
        conf, where = self._data_dir / "nats-server.conf", (self._data_dir, self.log_file)
        accounts = self.auth.accounts_file.relative_to(self._data_dir) if self._has_accounts else ""
        text = server_config(
            self._name,
            *where,
            self._port,
            self._monitor_port,
            enabled=enabled,
            accounts=str(accounts),
        )
        new = conf.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(conf)
        return conf

    def _spawn(self, conf: Path, lock: int) -> subprocess.Popen[bytes]:
        # What the server prints before it opens its log, or in a panic, also goes to the log file.
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [self._binary, "--config", conf],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment_without_settings(),
                pass_fds=[lock],
                # Ctrl-C at the terminal must reach only this process, which then stops the server.
                start_new_session=True,
            )

    def _wait_until_ready(self, deadline: float, log_start: int) -> None:
        while time.monotonic() < deadline:
            if not self.running:
                raise self._failed_start(log_start)
            if self._stores() is True:
                return
            time.sleep(POLL_S)
        raise ServerError(f"nats-server was not ready in time: see {self.log_file}")

    def _wait_for_storage(self, deadline: float, *, enabled: bool) -> None:
        while time.monotonic() < deadline and self.running:
            if self._stores() is enabled:
                return
            time.sleep(POLL_S)
        raise ServerError(f"nats-server did not restart its storage: see {self.log_file}")

    def _stores(self) -> bool | None:
        """Return whether this server stores messages; None if the server does not respond."""
        info = _server_info(self._port)
        return info.get("jetstream") is True if info.get("server_name") == self._name else None

    def _failed_start(self, log_start: int) -> ServerError:
        """Return an error that says why the server ended, from its log since `log_start`."""
        with self.log_file.open("rb") as log:
            log.seek(log_start)
            lines = log.read().decode("utf-8", "replace").splitlines()
        for line in lines:
            bind = re.search(r":(\d+): bind: address already in use", line)
            if bind:
                return _port_taken(int(bind[1]), is_client_port=int(bind[1]) == self._port)
        last = re.sub(r"^\[\d+\] \S+ \S+ ", "", lines[-1]) if lines else "it logged nothing"
        return ServerError(f"nats-server ended at its start: {last} (more in {self.log_file})")

    def _dismiss_guard(self) -> None:
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None

    def _clean_up(self) -> None:
        self._dismiss_guard()
        if self._process is not None:
            self._process.wait()
            self._process = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _server_info(port: int) -> dict[str, object]:
    """Return what a NATS server sends to each new client; empty if no NATS server responds.

    The message is the `INFO` of https://docs.nats.io/reference/reference-protocols/nats-protocol.
    """
    try:
        with socket.create_connection((HOST, port), timeout=0.5) as connection:
            connection.settimeout(0.5)
            with connection.makefile("rb") as stream:
                word, _, text = stream.readline(64 * 1024).partition(b" ")
        info = json.loads(text) if word == b"INFO" else None
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def _port_taken(port: int, *, is_client_port: bool) -> ServerError:
    setting = " with NODEPOOL_NATS_PORT" if is_client_port else ""
    return ServerError(
        f"port {port} on {HOST} is taken: stop what listens there, or choose another{setting}"
    )


def _cannot_write(data_dir: Path, error: OSError) -> ServerError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ServerError(f"no space left for {data_dir}: free some, or choose another directory")
    reason = error.strerror or str(error)
    return ServerError(
        f"cannot run nats-server in {data_dir}: {error.filename or 'a file'}: {reason}: "
        "fix that, or choose another directory"
    )
