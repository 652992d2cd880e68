"""A real `sushy-emulator` with machines that are switched on and off by nobody but its callers."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from nodepool.local.ports import HOST
from testbed.ports import free_port

START_S = 30.0
PAUSE_S = 0.05
SYSTEMS = 500
"""More machines than all tests in one process need."""
# Its machines take a random time from 1 to 11 seconds to switch; here it is the shortest.
PROGRAM = """
import random
random.randint = lambda least, most: least
from sushy_tools.emulator.main import main
main()
"""


@dataclass(frozen=True)
class Emulated:
    """A machine of an emulator. url: of the emulator. id: of its system. mac: of its interface."""

    url: str
    id: str
    mac: str


class Emulator:
    """A running emulator, whose machines are handed out one by one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._numbers = count()

    def machine(self) -> Emulated:
        """A machine that nobody has touched; it is off."""
        number = next(self._numbers)
        assert number < SYSTEMS, "no machine is left; add to SYSTEMS"
        return Emulated(self._url, _id(number), _mac(number))


def _id(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012}"


def _mac(number: int) -> str:
    return f"00:5c:52:31:{number >> 8:02x}:{number & 0xFF:02x}"


@contextmanager
def emulator(folder: Path) -> Iterator[Emulator]:
    """An emulator that answers; it ends with the context."""
    port = free_port()
    systems = [
        {
            "uuid": _id(number),
            "name": f"machine-{number}",
            "power_state": "Off",
            "nics": [{"mac": _mac(number), "ip": "192.0.2.1"}],
        }
        for number in range(SYSTEMS)
    ]
    settings = {
        "SUSHY_EMULATOR_LISTEN_IP": HOST,
        "SUSHY_EMULATOR_LISTEN_PORT": port,
        "SUSHY_EMULATOR_STATE_DIR": str(folder),
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_FAKE_SYSTEMS": systems,
    }
    config = folder / "emulator.conf"
    config.write_text("\n".join(f"{name} = {value!r}" for name, value in settings.items()))
    command = [sys.executable, "-c", PROGRAM, "--config", str(config)]
    url = f"http://{HOST}:{port}"
    with (folder / "emulator.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        _wait_for(url, process)
        yield Emulator(url)
    finally:
        process.terminate()
        process.wait()


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_S
    while True:
        assert process.poll() is None, "the emulator has ended; see emulator.log"
        try:
            with urllib.request.urlopen(f"{url}/redfish/v1/Systems", timeout=5) as answer:
                assert len(json.load(answer)["Members"]) == SYSTEMS
            return
        except OSError:
            assert time.monotonic() < end, "the emulator does not start"
            threading.Event().wait(PAUSE_S)
