"""A service under a limit of its memory: its pages respond, or it ends and says why."""

import resource
from pathlib import Path

import pytest

from bus.harness import ReplicaProcess, launched, until
from nodepool.local.server import NatsServer
from testbed.pages import PageFailure
from testbed.ports import free_port

MEGABYTE = 1024 * 1024
LIMITS = range(40, 130, 6)
"""Limits in megabytes: too few to begin with, then too few for threads, and in the end enough."""
PAGES = ("/livez", "/readyz", "/metrics")
PROBE_S = 3.0
"""How long a probe waits for its page: a thread that finds no memory never responds."""


def responds(replica: ReplicaProcess, path: str) -> bool:
    """Return whether there is a response, whatever it says."""
    try:
        replica.page(path, PROBE_S)
    except PageFailure:
        return True
    except OSError:
        return False
    return True


def has_ended(replica: ReplicaProcess) -> bool:
    """Return whether the process has ended."""
    return replica.process.poll() is not None


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of processes are Linux's")
@pytest.mark.timeout(600)
async def test_no_service_works_on_without_its_pages_where_memory_ends(
    server: NatsServer, tmp_path: Path
) -> None:
    ended = []
    for megabytes in LIMITS:
        with launched("quota", server, tmp_path, free_port()) as replica:
            # given a limit that is met while the process begins, or later, or not at all
            limit = megabytes * MEGABYTE
            resource.prlimit(replica.pid, resource.RLIMIT_AS, (limit, limit))

            # when it has ended, or its pages have responded
            def is_settled(it: ReplicaProcess = replica) -> bool:
                return has_ended(it) or all(responds(it, path) for path in PAGES)

            await until(is_settled)
            code = replica.process.poll()
            ended.append(code is not None)

            # then one that has ended says why, and no success
            assert code is None or (code != 0 and replica.errors().strip())
    # and there were both
    assert {*ended} == {True, False}
