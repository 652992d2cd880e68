"""Plans the processes of a control plane on one machine, and the settings of each."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from nodepool.auth.accounts import ARCHIVER, GATEWAY
from nodepool.contract.real_machines import PROVIDER
from nodepool.local.pages import CONSOLE
from nodepool.local.server import NatsServer
from nodepool.local.supervisor import Program
from nodepool.nats.wire.access import PLACEHOLDER, Access

ALONE = ((ARCHIVER,), (CONSOLE,), (PROVIDER,))
"""The groups that are programs of their own: no other service shares their process."""


def plan_programs(
    groups: Sequence[Sequence[str]],
    server: NatsServer,
    logs: Path,
    ports: Sequence[int],
    limit: int = 0,
    *,
    archive: str = "",
    own: Mapping[str, Mapping[str, str]] = {},
) -> Sequence[Program]:
    """Return the processes to run, each with the services of a group and one of the ports.

    The last process is the gateway, with the last port. Each service uses its own key.

    limit: how many bytes the server may store; 0 if not known.
    archive: where the archiver, if a group has it, archives the log.
    own: further settings of a group, by the name of its first program.
    """
    shared = _share_settings(server, logs, limit, archive)
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
