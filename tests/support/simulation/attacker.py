"""A sender that means harm: it publishes whatever a client could, on every subject of the log.

What it does must change nothing for the others. It has the right to publish everywhere, which the
permissions of a server would not give it; so it leaves out what only those can prevent: an event
that is right in every part, on the subject of the service that would say it.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Any

from nodepool.contract import commands
from nodepool.contract.decode import unknown_command
from nodepool.contract.events import Wake
from nodepool.contract.keys import MachineKey, PoolPath, machine_parts
from nodepool.contract.log import Entry
from nodepool.contract.subjects import address_of
from nodepool.engine.world import Log, World
from nodepool.service import commit_subject
from support.audit.auditor import Auditor
from support.hostile.contents import mutated
from support.paths import pool_path
from support.simulation.sender import Sender, SentCommand

OWN = ("evil", "evil", "x")
"""The identity that is its own."""
FLOOD = 40
"""How many commands it sends in one go."""
HUGE_BYTES = (300_000, 900_000)


@dataclass
class Attacker:
    """Draws from a `Random` of its own, so that a simulation without it runs as before.

    world, auditor, sender: those of the simulation. Its commands are among those of the sender, as
      each of them has to have an outcome; its events are noise to the auditor.
    some_path: the path of somebody's NodePool.
    """

    random: Random
    world: World
    auditor: Auditor
    sender: Sender
    some_path: Callable[[], PoolPath]

    @property
    def log(self) -> Log:
        """The log that all share."""
        return self.world.log

    def maybe_act(self, chance: float) -> None:
        """Acts, with this chance."""
        if chance and self.random.random() < chance:
            self._act()

    def _act(self) -> None:
        """Does one of the things that could do harm."""
        self.random.choice(
            (
                self._send_malformed,
                self._send_event_as_command,
                self._say_of_another,
                self._say_for_service,
                self._commit_for_service,
                self._wake,
                self._take_id,
                self._send_huge,
                self._flood,
            )
        )()

    # Commands.

    def _send_malformed(self) -> None:
        """A command with something wrong in it, to anybody's NodePool or to its own."""
        if self.sender.sent:
            subject, content, id = self.random.choice(self.sender.sent)
            renamed = content.replace(f'"{id}"'.encode(), f'"{self._new_id()}"'.encode())
            self._send(subject, mutated(self.random, _document(renamed)))

    def _send_event_as_command(self) -> None:
        """An event of the log on the subject of a command with its name."""
        event = self._some_event()
        if event is not None:
            path = self.random.choice((self.some_path(), OWN))
            name = event.subject.rpartition(".")[2]
            self._send(f"np.cmd.{'.'.join(path)}.{name}", event.content)

    def _take_id(self) -> None:
        """A command under the id that somebody else's next command will have."""
        id = f"c{len(self.sender.sent) + 2}"  # Its own command is counted, too.
        name = self.random.choice(("ScaleNodePool", "DeleteNodePool", "ApplyNodePool"))
        self._send(f"np.cmd.{'.'.join(OWN)}.{name}", b"{}", id)

    def _send_huge(self) -> None:
        """A command larger than those that are taken, though the bus takes it."""
        size = self.random.choice(HUGE_BYTES)
        content = json.dumps({"targetNodes": 1, "x": "y" * size}).encode()
        self._send(f"np.cmd.{'.'.join(self.some_path())}.ScaleNodePool", content)

    def _flood(self) -> None:
        """Many commands at once that are refused one by one."""
        heard = {name for service in self.world.services for name in service.inputs}
        names = sorted(heard & commands.COMMANDS)
        for _ in range(FLOOD):
            name = self.random.choice(names)
            self._send(f"np.cmd.{'.'.join(OWN)}.{name}", b'{"targetNodes": -1}')

    def _send(self, subject: str, content: bytes, id: str = "") -> None:
        id = id or self._new_id()
        headers = {"Nats-Msg-Id": id}
        if self.log.append(subject, content, headers):
            # Its content may give it another id than its header does.
            id = unknown_command(subject, content, headers, 0).id
            self.sender.sent.append(SentCommand(subject, content, id))

    def _new_id(self) -> str:
        return f"evil-{len(self.log.entries)}"

    # Events, wakes and commit records.

    def _say_of_another(self) -> None:
        """An event about somebody's Node, on the subject of its service and of its own NodePool."""
        event = self._some_event()
        address = address_of(event.subject) if event is not None else None
        stays = self.auditor.facts.stays
        if event is None or address is None or not stays:
            return
        assignment = self.random.choice(list(stays)[-8:])
        stay = stays[assignment]
        org, cluster, pool = pool_path(stay.pool.key)
        zone, node = machine_parts(MachineKey(stay.machine))
        of_stay: dict[str, object] = {
            "org": org,
            "cluster": cluster,
            "pool": pool,
            "zone": zone,
            "node": node,
        }
        of_stay |= {"assignment": assignment, "uid": stay.pool.uid}
        envelope: dict[str, Any] = json.loads(event.content)
        data = envelope["data"]
        data |= {name: value for name, value in of_stay.items() if name in data}
        subject = f"np.evt.{address.service}.{'.'.join(OWN)}.{address.name}"
        self._note(subject, json.dumps(envelope).encode())

    def _say_for_service(self) -> None:
        """A right event on the subject of its service, as an output of an input that is open.

        No other service hears it.
        """
        heard = {name for service in self.world.services for name in service.inputs}
        said = {name for service in self.world.services for name in service.outputs}
        event = self._some_event(said - heard)
        if event is not None:
            envelope: dict[str, Any] = json.loads(event.content)
            newest = len(self.log.entries)
            envelope["causeposition"] = newest - self.random.randrange(4)
            self._note(event.subject, json.dumps(envelope).encode())

    def _commit_for_service(self) -> None:
        """A commit record that the service did not make: made up, or one of its own again."""
        service = self.random.choice(self.world.services)
        subject = commit_subject(service.name)
        records = [
            entry
            for entry in self.log.entries[-400:]
            if entry.subject == subject and entry.position not in self.auditor.noise
        ]
        if not records:
            return
        record: dict[str, Any] = json.loads(self.random.choice(records).content)
        newest = len(self.log.entries)
        contents: tuple[object, ...] = (
            record,
            {"position": newest},
            {**record, "position": newest},
            {**record, "follows": records[-1].position, "log": "another"},
            {**record, "position": newest, "outputs": newest},
            {**record, "position": 10**30},
            [record],
        )
        content = json.dumps(self.random.choice(contents)).encode()
        self._note(subject, self.random.choice((content, content, b"noise", b"[" * 5_000)))

    def _wake(self) -> None:
        """A `Wake` that no replica fired: right, of another service, or unreadable."""
        service, other = (
            self.random.choice(self.world.services),
            self.random.choice(self.world.services),
        )
        wake: dict[str, object] = {"type": Wake.__name__, "source": "clock", "id": self._new_id()}
        wake["data"] = {"service": other.name, "due": self.log.clock.isoformat()}
        subject = f"np.evt.clock.{service.name}._._.Wake"
        if other is service:
            self.log.append(subject, json.dumps(wake).encode())
        else:
            self._note(subject, mutated(self.random, wake))

    def _note(self, subject: str, content: bytes) -> None:
        """Publishes what no service has said, and what an audit has to pass over."""
        position = self.log.append(subject, content)
        if position:
            self.auditor.noise.add(position)

    def _some_event(self, names: Collection[str] | None = None) -> Entry | None:
        """Return a recent event of a service, with one of these names unless `names` is None."""
        recent = [
            entry
            for entry in self.log.entries[-300:]
            if entry.subject.startswith("np.evt.")
            and entry.position not in self.auditor.noise
            and not entry.subject.startswith("np.evt.clock.")
            and (names is None or entry.subject.rpartition(".")[2] in names)
        ]
        return self.random.choice(recent) if recent else None


def _document(content: bytes) -> object:
    """The JSON of a content; an empty object where it holds none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return {}
