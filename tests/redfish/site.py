"""A site: emulated machines, an inventory of them, a bus, and the real process of `metal`."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeVar

from yarl import URL

from bus.harness import BINARY, PATIENCE_S, ReplicaProcess, launched
from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.events import MachineAdded, MachineWiped, PowerAnswered
from nodepool.contract.log import Entry
from nodepool.contract.messages import Event, Message, wrap
from nodepool.contract.subjects import address_of, subject_of
from nodepool.local.server import NatsServer
from nodepool.nats.log import api
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.connection import Connection, connect
from redfish.emulator import Emulator
from redfish.front import ENVIRONMENT, PASSWORD, SECRETS, USER, Front, fronted
from redfish.images import ask
from support.constants import H100, ZONE
from testbed.ports import free_port

M = TypeVar("M", bound=Message)
NODE_IMAGE = "https://boot.test/node.efi"
WIPE_IMAGE = "https://boot.test/wipe.efi?report={report}"
WIPED = "its wipe is confirmed"
MEMORY_GIB = 2048
RACK = 50
"""How many machines a rack of the site has."""
KEY = "k" * 64
WITHIN_S = 90.0
"""How long a story waits: a silence takes 20 s, and a busy machine takes several times as long."""
JOIN = "staple-of-the-cluster"
"""The join token of all clusters."""


@dataclass
class Rig:
    """A machine of the site: its controller, and what it shows.

    serial, expected: the serial number that it shows, and that the inventory expects.
    is_wiped: whether it is wiped after each stay.
    memory_gib: the memory that it shows.
    entries: the log of its controller.
    progress: how far its boot is; empty if its controller does not tell.
    power: the power state that its controller shows wrongly; empty if it shows the right one.
    history: the images that it has booted, in order, empty for its disk; `WIPED` for each report of
        a wipe that was accepted.
    configs: the configurations that its images have read.
    ends_wipe: whether a wipe that it boots ends well; None if it does not end by itself.
    end_wipe: ends the wipe that it has booted last.
    is_listed: whether the inventory has it.
    trust: the fields of the inventory that say how the certificate of its controller is checked.
    firmware: the version of the firmware of its controller that the inventory expects, if any.
    """

    name: str
    front: Front
    serial: str
    expected: str
    is_wiped: bool = True
    memory_gib: int = MEMORY_GIB
    progress: str = ""
    power: str = ""
    history: list[str] = field(default_factory=list)
    configs: list[dict[str, object]] = field(default_factory=list)
    ends_wipe: bool | None = True
    is_listed: bool = True
    trust: dict[str, str] = field(default_factory=dict)
    firmware: str = ""
    end_wipe: Callable[[], None] = field(default=lambda: None)
    entries: list[dict[str, str]] = field(default_factory=list)

    @property
    def booted(self) -> list[str]:
        """The images that it has booted, in order; empty for its disk."""
        return [each for each in self.history if each != WIPED]

    def show(self, system: dict[str, Any]) -> None:
        """Show what the emulator does not have."""
        system["SerialNumber"] = self.serial
        system["MemorySummary"] = {"TotalSystemMemoryGiB": self.memory_gib}
        if self.progress:
            system["BootProgress"] = {"LastState": self.progress}
        if self.power:
            system["PowerState"] = self.power
        system["LogServices"] = self.add_documents()

    def add_documents(self) -> dict[str, str]:
        """Give its controller a log; where that is."""
        logs = f"{self.front.path}/LogServices"
        entries = {"@odata.id": f"{logs}/SEL/Entries"}
        self.front.documents |= {
            logs: {"Members": [{"Id": "SEL", "Entries": entries}]},
            f"{logs}/SEL/Entries": {"Members": self.entries},
        }
        return {"@odata.id": logs}

    def add_entry(self, message: str) -> None:
        """Add an entry to its log."""
        number, moment = len(self.entries), "2026-01-01T00:00:00Z"
        entry = {"Id": str(number), "Created": moment, "Severity": "Critical", "Message": message}
        self.entries.append(entry)

    def describe(self) -> dict[str, object]:
        """The machine in the inventory."""
        return {
            "name": self.name,
            "position": int(self.name[1:]) % RACK + 1,
            "controller": {
                "address": f"{self.front.scheme}://127.0.0.1:{self.front.port}",
                "system": self.front.machine.id,
                **self.trust,
            },
            "expected": {
                "serial": self.expected,
                "memoryGib": MEMORY_GIB,
                "gpus": {"count": 0},
                "controllerVersion": self.firmware,
            },
        }


class Site:
    """The machines, the bus and the processes of one test.

    boots, wipe: the fields of the profiles in the inventory, without their type.
    """

    def __init__(self, server: NatsServer, folder: Path, data: Path, *, wipes: bool) -> None:
        self.server, self.folder, self.data = server, folder, data
        self.rigs: dict[str, Rig] = {}
        self.entries = list[Entry]()
        self.report_port = free_port()
        self.report_url = f"http://127.0.0.1:{self.report_port}"
        self.inventory = folder / "inventory.yaml"
        self.wipes = wipes
        self.boots: list[dict[str, object]] = [{"image": NODE_IMAGE}]
        self.wipe: dict[str, object] = {"image": WIPE_IMAGE}
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self.credentials = folder / "credentials"
        self.credentials.write_text(f"{USER}:{PASSWORD}")
        self.credentials.chmod(0o600)
        self.join_token = folder / "join"
        for file, content in ((folder / "key", KEY), (self.join_token, JOIN)):
            file.write_text(content)
            file.chmod(0o600)
        self._connection: Connection
        self._reader: Reader

    async def open(self) -> None:
        """Read the log."""
        self._connection = await connect(self.server.url, "site", patience_s=PATIENCE_S)
        await provision(self._connection)
        self._reader = Reader(self._connection, STREAM, ["np.>"])
        await self._reader.open()

    async def close(self) -> None:
        """Leave the bus."""
        for task in self._tasks:
            task.cancel()
        await self._reader.close()
        await self._connection.close()

    def add(self, front: Front) -> Rig:
        """A machine behind a controller; it is declared when the inventory is written."""
        number = len(self.rigs)
        rig = Rig(f"m{number}", front, serial=f"SN{number}", expected=f"SN{number}")
        rig.is_wiped = self.wipes
        front.changes[front.machine.id] = rig.show
        front.acted = lambda kind: self._act(rig, kind)
        self.rigs[rig.name] = rig
        return rig

    def _act(self, rig: Rig, kind: str) -> None:
        """Show what happens in a machine after a reset."""
        if kind != "On":
            return
        boot, rig.front.boot = rig.front.boot, {}
        image = str(boot.get("HttpBootUri") or "")
        rig.history.append(image)
        if "config" in URL(image).query:
            self._start(self._configure(rig, URL(image).query["config"]))
        if "wipe" not in image:
            return

        def end(*, passed: bool = True) -> None:
            self._start(self._report(rig, image, passed=passed))

        rig.end_wipe = end
        if rig.ends_wipe is not None:
            end(passed=rig.ends_wipe)

    def _start(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _configure(self, rig: Rig, address: str) -> None:
        """Read the configuration of a boot, as its image does; none once the boot is over."""
        reply = await ask("GET", address)
        rig.configs += [reply.document] if reply.status == HTTPStatus.OK else []

    async def _report(self, rig: Rig, image: str, *, passed: bool) -> None:
        """Report the end of a wipe, as its image does, until the report is accepted."""
        content = {"passed": passed} | ({} if passed else {"cause": "a disk has failed"})
        reply = await ask("POST", URL(image).query["report"], content)
        if reply.status == HTTPStatus.NO_CONTENT and passed:
            rig.history.append(WIPED)

    def declare(self) -> None:
        """Write the inventory of all machines."""
        racks = [*self._racks(is_wiped=True), *self._racks(is_wiped=False)]
        base = {"apiVersion": "metal/v1alpha1", "instanceType": H100}
        token = {"file": str(self.join_token)}
        boot = {**base, "kind": "BootProfile", "joinToken": token}
        boots = [{**boot, **each} for each in self.boots]
        wipe = {**base, "kind": "WipeProfile", **self.wipe}
        documents = [*racks, *boots, wipe]
        written = self.inventory.with_suffix(".new")
        written.write_text("\n---\n".join(map(json.dumps, documents)))
        written.replace(self.inventory)

    def _racks(self, *, is_wiped: bool) -> Iterator[dict[str, object]]:
        rigs = [each for each in self.rigs.values() if each.is_listed]
        listed = [each.describe() for each in rigs if each.is_wiped == is_wiped]
        for first in range(0, len(listed), RACK):
            yield {
                "apiVersion": "metal/v1alpha1",
                "kind": "Rack",
                "name": f"{'wiped' if is_wiped else 'kept'}-{first // RACK}",
                "zone": ZONE,
                "instanceType": H100,
                "wipes": is_wiped,
                "controllers": {"credentials": {"file": str(self.credentials)}},
                "machines": listed[first : first + RACK],
            }

    @contextmanager
    def process(self, *, hurry: bool = True, **settings: str) -> Iterator[ReplicaProcess]:
        """A process of `metal`; it is killed at the end. hurry: whether minutes take seconds."""
        given = {**self.settings(hurry=hurry), **settings}
        name = "redfish.program metal" + (" --hurry" if hurry else "")
        with launched(
            name,
            self.server,
            self.folder,
            free_port(),
            output=None,
            others=ENVIRONMENT,
            **given,
        ) as process:
            yield process
            self._keep_metrics(process)

    def settings(self, *, hurry: bool) -> dict[str, str]:
        """The settings of a process of `metal`."""
        return {
            "inventory": str(self.inventory),
            "metal_poll_seconds": "1" if hurry else "30",
            "metal_report_port": str(self.report_port),
            "metal_report_url": self.report_url,
            "metal_report_key_file": str(self.folder / "key"),
        }

    @contextmanager
    def services(self) -> Iterator[ReplicaProcess]:
        """All services except the provider, in one process."""
        names = "validator quota capacity allocator lifecycle preemption autoscaler aggregator"
        log = str(self.folder / "{service}.log")
        with launched(
            f"redfish.program {names}", self.server, self.folder, free_port(), log_file=log
        ) as process:
            yield process
            self._keep_metrics(process)

    def _keep_metrics(self, process: ReplicaProcess) -> None:
        """Keep the last metrics of a process, if it still serves them, to look for secrets."""
        with suppress(OSError):
            metrics = process.page("/metrics", 1.0)
            (self.folder / f"metrics-{process.pid}.log").write_text(metrics)

    def check_secrets(self, *others: str) -> None:
        """Raise AssertionError if a secret is anywhere but in its own file.

        It may be in no stream of the bus, such as the log and the read model, in nothing that a
        process has logged or printed, and in no metrics.
        """
        texts = {str(each.position): each.content for each in self.entries}
        written = (self.folder.glob("*.log"), self.folder.glob("*.err"), self.data.rglob("*.blk"))
        texts |= {str(each): each.read_bytes() for each in chain(*written)}
        # The user's name is a word that messages of the test use too.
        secrets = [each.encode() for each in {*SECRETS, KEY, JOIN, *others} - {USER}]
        found = [name for name, text in texts.items() if any(each in text for each in secrets)]
        assert found == []

    async def tell(self, *messages: Message) -> None:
        """Store messages, each as its speaker."""
        for message in messages:
            speaker = message.speaker if isinstance(message, Event) else ""
            envelope = wrap(message, id=f"t{next(self._numbers)}", source=speaker or "trial")
            await api.publish_event(
                self._connection, subject_of(message, speaker), envelope.encode()
            )

    async def read(self, timeout_s: float = 0.05) -> None:
        """Read what is new in the log."""
        self.entries += await self._reader.next(timeout_s=timeout_s)

    def said(self, kind: type[M], machine: str = "", **fields: object) -> list[M]:
        """All messages of a class with these values."""
        return [each for _, each in self.placed(kind, machine, **fields)]

    def placed(self, kind: type[M], machine: str = "", **fields: object) -> Sequence[tuple[int, M]]:
        """All messages of a class with these values, with their positions."""
        found = self._find(kind, machine, fields)
        return [(entry.position, each) for entry, each in found]

    def dated(self, kind: type[M], machine: str) -> Sequence[tuple[datetime, M]]:
        """All messages of a class about a machine, with the times at which they were stored."""
        return [(entry.time, each) for entry, each in self._find(kind, machine, {})]

    def _find(
        self, kind: type[M], machine: str, fields: Mapping[str, object]
    ) -> Iterator[tuple[Entry, M]]:
        end = f".{machine}.{kind.__name__}" if machine else f".{kind.__name__}"
        for entry in self.entries:
            if not entry.subject.endswith(end):
                continue
            envelope = decode(kind, entry.subject, entry.content, {}, entry.position)
            assert not isinstance(envelope, Unreadable), envelope
            data = envelope.data
            if all(getattr(data, name) == value for name, value in fields.items()):
                yield entry, data

    async def expect(
        self,
        kind: type[M],
        machine: str = "",
        *,
        count: int = 1,
        within_s: float = WITHIN_S,
        **fields: object,
    ) -> M:
        """The last of `count` messages of a class with these values, as soon as all are there."""
        try:
            async with asyncio.timeout(within_s):
                while len(found := self.said(kind, machine, **fields)) < count:
                    await self.read(0.2)
        except TimeoutError:
            raise AssertionError(
                f"no {kind.__name__} of {machine} {fields} after:\n{self.story(machine)}"
            ) from None
        return found[count - 1]

    async def until_free(self, count: int, within_s: float = WITHIN_S) -> None:
        """Return once `count` new machines are free: added, and off again after a first wipe."""
        await self.expect(MachineAdded, count=count, within_s=within_s)
        if self.wipes:
            await self.expect(MachineWiped, count=count, within_s=within_s, assignment=0)
            await self.expect(PowerAnswered, count=2 * count, within_s=within_s, outcome="done")

    async def until(self, holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        """Return as soon as a condition holds."""
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    await self.read()
        except TimeoutError:
            raise AssertionError(f"it does not hold after:\n{self.story()}") from None

    def story(self, machine: str = "") -> str:
        """The log, one line for each message, for a failure."""
        lines = []
        for entry in self.entries:
            address = address_of(entry.subject)
            if address is not None and (not machine or address.path[2] == machine):
                data = json.loads(entry.content).get("data")
                lines.append(f"{entry.position} {address.service} {address.name} {data}")
        return "\n".join(lines[-60:])


@asynccontextmanager
async def a_site(
    machines: Emulator,
    folder: Path,
    count: int,
    *,
    wipes: bool = False,
    data: Path | None = None,
) -> AsyncIterator[Site]:
    """A site with a number of declared machines; no process runs yet.

    data: where the bus has its data; by default in the folder.
    """
    async with AsyncExitStack() as stack:
        stored = (data or folder) / "nats"
        server = stack.enter_context(NatsServer(stored, free_port(), BINARY))
        site = Site(server, folder, stored, wipes=wipes)
        await site.open()
        stack.push_async_callback(site.close)
        for _ in range(count):
            front = await stack.enter_async_context(fronted(machines.machine()))
            site.add(front)
        site.declare()
        yield site
        site.check_secrets()
