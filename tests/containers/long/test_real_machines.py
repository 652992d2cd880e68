"""The profile for real machines of the compose file, with an emulated machine on this host."""

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from yarl import URL

from containers.stack import Stack, docker, only_root, until
from redfish.emulator import emulator
from redfish.front import PASSWORD, USER, Document, Front, fronted
from redfish.images import ask
from support.certificates import Certificates, certificates, needs_openssl
from support.constants import H100
from testbed.ports import free_port

pytestmark = [pytest.mark.timeout(900), needs_openssl, only_root]
ZONE, NAME, SERIAL = "LAB-01A", "r1-m1", "SN1"
MEMORY_GIB = 2048
USER_OF_IMAGE = 10001
EVERYWHERE = "0.0.0.0"
PROFILE = ("--profile", "metal")


def gateway(stack: Stack) -> str:
    """The address of this host for the containers of a project."""
    (network,) = stack.left("network")
    shown = docker("network", "inspect", "--format", "{{json .IPAM.Config}}", network)
    (config,) = json.loads(shown)
    return str(config["Gateway"])


def show(system: Document) -> None:
    """Show what the emulator does not have."""
    system["SerialNumber"] = SERIAL
    system["MemorySummary"] = {"TotalSystemMemoryGiB": MEMORY_GIB}


@asynccontextmanager
async def a_machine(folder: Path, made: Certificates) -> AsyncIterator[Front]:
    """A machine whose controller listens at all addresses of this host; its wipe ends at once."""
    with emulator(folder) as machines:
        async with fronted(machines.machine(), made.tls, EVERYWHERE) as front:
            front.changes[front.machine.id] = show
            reports = set[asyncio.Task[object]]()

            def boot(kind: str) -> None:
                address = URL(str(front.boot.get("HttpBootUri") or "")).query.get("report")
                if kind == "On" and address is not None:
                    reports.add(asyncio.create_task(ask("POST", address, {"passed": True})))

            front.acted = boot
            yield front
            for report in reports:
                report.cancel()


def write_inventory(folder: Path, host: str, front: Front, made: Certificates) -> None:
    """Write the inventory of one machine, with what it refers to, for the user of the image."""
    base = {"apiVersion": "metal/v1alpha1", "instanceType": H100}
    machine = {
        "name": NAME,
        "position": 1,
        "controller": {
            "address": f"https://{host}:{front.port}",
            "system": front.machine.id,
            "fingerprint": f"sha256:{made.fingerprint}",
        },
        "expected": {"serial": SERIAL, "memoryGib": MEMORY_GIB, "gpus": {"count": 0}},
    }
    credentials = {"credentials": {"file": "/inventory/controllers.login"}}
    rack = {"kind": "Rack", "name": "r1", "zone": ZONE, "controllers": credentials}
    boot = {"kind": "BootProfile", "image": "https://boot.test/node.efi"}
    documents = [
        base | rack | {"machines": [machine]},
        base | boot | {"joinToken": {"file": "/inventory/join.token"}},
        base | {"kind": "WipeProfile", "image": "https://boot.test/wipe.efi?report={report}"},
    ]
    files = {
        "inventory.yaml": "\n---\n".join(map(json.dumps, documents)),
        "controllers.login": f"{USER}:{PASSWORD}",
        "report.key": secrets.token_hex(),
        "join.token": secrets.token_hex(),
    }
    folder.mkdir(mode=0o700)
    for name, content in files.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o600)
        os.chown(folder / name, USER_OF_IMAGE, USER_OF_IMAGE)
    os.chown(folder, USER_OF_IMAGE, USER_OF_IMAGE)


async def test_a_machine_of_an_inventory_is_added_wiped_and_free(
    stack: Stack, tmp_path: Path
) -> None:
    # given the inventory of a machine that is off, and the settings for reports of wipes
    made, port = certificates(tmp_path), free_port()
    async with a_machine(tmp_path, made) as front:
        host = gateway(stack)
        write_inventory(tmp_path / "inventory", host, front, made)
        settings = {
            "INVENTORY": str(tmp_path / "inventory"),
            "REPORT_PORT": str(port),
            "REPORT_URL": f"http://{host}:{port}",
            "TRUST_BOOT_NETWORK": "on",
        }
        stack.variables |= settings
        try:
            # when the profile is brought up
            up = (*PROFILE, "up", "--build", "--detach", "metal")
            await asyncio.to_thread(stack.run, *up)

            # then the machine is added, wiped by one boot, and free
            def is_free() -> bool:
                listed = stack.cli("machine", "list").splitlines()
                return any(NAME in line and "Free" in line for line in listed)

            def is_off_again() -> bool:
                return front.carried_out == front.resets == ["On", "ForceOff"]

            await asyncio.to_thread(until, is_free, lambda: logs(stack))
            await asyncio.to_thread(until, is_off_again, lambda: logs(stack))
            described = await asyncio.to_thread(stack.cli, "machine", "describe", f"{ZONE}/{NAME}")
            assert "wiped" in described
        finally:
            await asyncio.to_thread(stack.run, *PROFILE, "rm", "--stop", "--force", "metal")
            for name in settings:
                del stack.variables[name]


def logs(stack: Stack) -> str:
    """The last lines that the service for real machines has logged."""
    return stack.run(*PROFILE, "logs", "--tail", "20", "metal", check=False).stdout
