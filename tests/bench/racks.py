"""Racks of machines, with controllers that one process plays, and their inventory."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.controllers import MEMORY_GIB, serial_of
from nodepool.contract.catalog import ZONES
from nodepool.local.ports import HOST
from support.certificates import Certificates

ZONE = next(name for name, each in ZONES.items() if each.provider == "metal")
KIND = "gd-8xh100ib-i128"
RACK = 50
"""How many machines a rack has."""
LOGIN = "steward:correct-horse"


def name_of(number: int) -> str:
    """The name of the machine of this number."""
    return f"m{number:05d}"


@contextmanager
def start_controllers(machines: int, tls: Certificates | None) -> Iterator[list[int]]:
    """The ports of a process with a number of controllers; the first port reports its counts."""
    files = [str(tls.certificate), str(tls.key)] if tls is not None else []
    command = [sys.executable, "-m", "bench.controllers", str(machines), *files]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None, "it is a pipe"
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


def write_inventory(folder: Path, ports: Sequence[int], tls: Certificates | None) -> Path:
    """Write the inventory of the machines whose controllers have these ports; return its path."""
    credentials = folder / "login"
    credentials.write_text(LOGIN)
    credentials.chmod(0o600)
    base = {"apiVersion": "metal/v1alpha1", "instanceType": KIND}
    access: dict[str, object] = {"credentials": {"file": str(credentials)}}
    access |= {} if tls is None else {"caFile": str(tls.ca)}
    scheme = "http" if tls is None else "https"
    listed = [_describe(n, f"{scheme}://{HOST}:{port}") for n, port in enumerate(ports)]
    racks = [
        {
            **base,
            "kind": "Rack",
            "name": f"r{first // RACK}",
            "zone": ZONE,
            "wipes": False,
            "controllers": access,
            "machines": listed[first : first + RACK],
        }
        for first in range(0, len(listed), RACK)
    ]
    token = {"file": "/join.token"}
    image = "https://boot.test/node.efi"
    boot = {**base, "kind": "BootProfile", "image": image, "joinToken": token}
    text = "\n---\n".join(map(json.dumps, [*racks, boot]))
    inventory = folder / "inventory.yaml"
    inventory.write_text(text)
    return inventory


def _describe(number: int, address: str) -> dict[str, object]:
    return {
        "name": name_of(number),
        "position": number % RACK + 1,
        "controller": {"address": address},
        "expected": {
            "serial": serial_of(number),
            "memoryGib": MEMORY_GIB,
            "gpus": {"count": 8, "model": "H100"},
        },
    }
