"""The configuration file of a nats-server on one machine."""

import json
from pathlib import Path

from nodepool.local.listening import Listening
from nodepool.local.ports import HOST

MAX_PAYLOAD = 1024 * 1024
QUEUE_MAX = 2_000
"""The most messages of each stream that wait in memory to be stored.

A flood of unacknowledged messages therefore delays other messages by at most the time to store
this many. For the 100,000 messages of the server's default, a disk may need minutes. The limit has
room for twice the largest commit.
"""
PENDING_MAX = 16 * 1024 * 1024
"""How many bytes wait in memory for each client that does not read, until the server cuts it off.

A service that is busy has requested at most half of it.
"""
LOG_LIMIT = 16 * 1024 * 1024
"""The size in bytes at which the server begins a new log file."""


def server_config(
    name: str,
    data_dir: Path,
    log_file: Path,
    listening: Listening,
    monitor_port: int | None,
    *,
    enabled: bool = True,
    accounts: str = "",
) -> str:
    """Return the text of the file; if `monitor_port` is None, there is no monitoring over HTTP.

    accounts: the path of the file with the accounts; "" if anybody may connect.
    listening: where clients connect, and the certificate that is shown to them.
    enabled: whether JetStream is on, so that the server stores messages; a reload changes it.
    """
    settings: list[tuple[str, str | int]] = [
        ("server_name", name),
        ("listen", listening.address),
        ("max_payload", MAX_PAYLOAD),
        ("max_pending", PENDING_MAX),
        ("log_file", str(log_file)),
        ("logfile_size_limit", LOG_LIMIT),
        ("logfile_max_num", 2),
    ]
    if monitor_port is not None:
        settings.append(("http", f"{HOST}:{monitor_port}"))
    includes = [f"include {_quote_value(accounts)}"] if accounts else []
    lines = [f"{key}: {_quote_value(value)}" for key, value in settings]
    # The server itself appends "jetstream" to this path.
    store = _quote_value(str(data_dir))
    # "always": a message is on disk before it is acknowledged, so it survives a power failure.
    switch = "" if enabled else "  enabled: false\n"
    lines.append(
        f"jetstream {{\n{switch}  store_dir: {store}\n  sync_interval: always\n"
        f"  max_buffered_msgs: {QUEUE_MAX}\n}}"
    )
    return "\n".join([*lines, *includes, *_tls(listening)]) + "\n"


def _tls(listening: Listening) -> list[str]:
    """Return the block with which the server takes nothing that is not encrypted."""
    if (files := listening.certificate) is None:
        return []
    shown = {"cert_file": str(files.certificate), "key_file": str(files.key)}
    pairs = "".join(f"  {key}: {_quote_value(value)}\n" for key, value in shown.items())
    return [f"tls {{\n{pairs}  timeout: 5\n}}"]


def _quote_value(value: str | int) -> str:
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)
