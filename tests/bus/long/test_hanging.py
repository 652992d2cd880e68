"""A process of a service that hangs, as the doctor finds it."""

import asyncio
import json
from pathlib import Path

import pytest

from bus.harness import connected, launched, limit, outcome, send, until
from nodepool.cli.app import run
from nodepool.local.server import NatsServer
from testbed.paused import pause_process
from testbed.ports import free_port

HANGS_S = 90.0
"""How long a request for messages stays open at the server, and much more."""
CHECK = "service quota"


async def test_the_doctor_names_a_frozen_process_as_hanging_and_has_it_killed_first(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def found() -> dict[str, str]:
        capsys.readouterr()
        await asyncio.to_thread(run, ["--url", server.url, "doctor", "-o", "json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        (finding,) = (each for each in checks if each["check"] == CHECK)
        return dict(finding)

    with launched("quota", server, tmp_path, free_port()) as replica:
        # given a service at work, whose only process is then frozen
        async with connected(server.url) as connection:
            await send(connection, limit(1), "c1")
            await outcome(connection, "c1")
        with pause_process(replica.pid):

            async def hangs() -> bool:
                return "it hangs" in (await found())["text"]

            # when the doctor looks, then it says in the end that the process hangs
            await until(hangs, HANGS_S)
            finding = await found()

        # and the process is killed before another one is started
        assert finding["status"] == "problem"
        assert finding["text"].startswith("a replica has stopped reading the log: it hangs")
        assert finding["fix"].startswith("look at its /livez; kill the process")
