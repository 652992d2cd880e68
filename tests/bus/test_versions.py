"""`nodepool version` against real servers: which programs are at work, and what is not known."""

import asyncio
import json
from importlib.metadata import version
from pathlib import Path

import pytest

from bus.harness import connected, serving
from nodepool.cli.app import run
from nodepool.local.server import NatsServer
from support.services import services

OWN = version("nodepool")


async def nodepool(server: NatsServer, *words: str) -> int:
    """Run a command and return its exit code."""
    return await asyncio.to_thread(run, ["--url", server.url, *words])


async def server_version(server: NatsServer) -> str:
    """Return the version that the server shows to a connection."""
    async with connected(server.url) as connection:
        return str(connection._server_info["version"])


@pytest.mark.parametrize("word", ["version", "--version"])
async def test_the_versions_of_the_server_and_of_the_services_at_work_are_printed(
    server: NatsServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    # given two services at work
    quota, validator = services("quota", "validator")
    async with (
        serving(quota, server, tmp_path / "1.log"),
        serving(validator, server, tmp_path / "2.log"),
    ):
        number = await server_version(server)

        # when a user asks for the versions
        assert await nodepool(server, word) == 0

        # then there is a line for each kind of program
        lines = [
            f"nodepool {OWN}",
            f"NATS server {number}",
            f"services {OWN}: quota, validator",
        ]
        assert capsys.readouterr() == ("\n".join(lines) + "\n", "")

        # and as an object, the versions are fields
        assert await nodepool(server, "version", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == {
            "clientVersion": {"version": OWN},
            "serverVersion": {"version": number},
            "serviceVersions": {"quota": [OWN], "validator": [OWN]},
        }


async def test_a_server_without_services_is_printed_and_noted(
    server: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    number = await server_version(server)

    assert await nodepool(server, "version") == 0

    assert capsys.readouterr() == (
        f"nodepool {OWN}\nNATS server {number}\n",
        "no service is at work; 'nodepool doctor' says more\n",
    )
