"""Plans the processes of a control plane on one machine, and the settings of each."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from nodepool.auth.accounts import ARCHIVER, GATEWAY
from nodepool.local.pages import CONSOLE, PORT, console_settings
from nodepool.local.server import NatsServer
from nodepool.local.supervisor import Program
from nodepool.nats.wire.access import PLACEHOLDER, Access

ALONE = ((ARCHIVER,), (CONSOLE,))
"""The groups that are programs, not services."""


def plan_programs(
    groups: Sequence[Sequence[str]],
    server: NatsServer,
    logs: Path,
    ports: Sequence[int],
    limit: int = 0,
    *,
    archive: str = "",
    pages: int = PORT,
) -> Sequence[Program]:
    """Return the processes to run, each with the services of a group and one of the ports.

    The last process is the gateway, with the last port. Each service uses its own key.

    limit: how many bytes the server may store; 0 if not known.
    archive: where the archiver, if a group has it, archives the log.
    pages: the port of the console, if a group has it.
    """
    shared = _share_settings(server, logs, limit, archive)
    own = {CONSOLE: console_settings(server.data_dir, server.auth, pages)}
    commands = [group if group in ALONE else ("nodepool.host", *group) for group in groups]
    return [
        Program(
            ", ".join(group),
            tuple(command),
            {**shared, **own.get(group[0], {}), "NODEPOOL_METRICS_PORT": str(port)},
            logs / f"{group[0]}.err",
        )
        for group, command, port in zip(
            (*groups, (GATEWAY,)), (*commands, (GATEWAY,)), ports, strict=True
        )
    ]


def _share_settings(server: NatsServer, logs: Path, limit: int, archive: str) -> Mapping[str, str]:
    """Return the settings that all processes have."""
    return {
        "NODEPOOL_URL": server.url,
        # The credentials in the environment are for another server.
        **{f"NODEPOOL_{name.upper()}": "" for name in Access.__slots__},
        "NODEPOOL_NKEY_FILE": str(server.auth.key_file(PLACEHOLDER)),
        "NODEPOOL_CA_FILE": str(server.authority or ""),
        "NODEPOOL_MEMBERS_FILE": str(server.auth.members_file),
        "NODEPOOL_LOG_FILE": str(logs / "{service}.log"),
        "NODEPOOL_MAX_FILE_STORE": str(limit),
        "NODEPOOL_ARCHIVE": archive,
    }
