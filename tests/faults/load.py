"""The load: the customers and machines of the simulation, on a real bus."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from faults.copies import FAULTS
from nodepool.contract.log import Entry
from nodepool.engine.world import Log
from nodepool.nats.log import api
from nodepool.nats.wire.connection import Connection
from support.audit.facts import Facts
from support.simulation.customers import Customers
from support.simulation.machines import Machines
from support.simulation.profile import Profile
from support.simulation.sender import Sender, SentCommand

PROFILE = Profile(
    machines=40,
    targets=(0, 1, 2, 3, 5, 8, 12),
    limits=(5, 10, 20, 40),
    faults=("boot", "registration"),
    boot_s=(0,),
)
"""Nothing boots for long, or hangs; only the preemption of a spot Node takes minutes."""
ACTIONS: Mapping[str, int] = {
    "apply": 14,
    "scale": 30,
    "delete": 3,
    "change_limit": 5,
    "delete_limit": 1,
    "batch": 8,
    "line_up": 2,
    "stay_wrong": 1,
    "relabel": 6,
    "retaint": 1,
    "break_one": 3,
    "repair_one": 6,
    "resend": 9,
    "send_malformed": 3,
}
"""What happens from outside, and how likely each of it is."""
RETRY_S = 0.1
REPLY_S = 2.0
"""How long a reply may take before a command is sent again, in seconds."""


@dataclass
class LiveLog(Log):
    """The log of a real bus: what is appended waits to be published, what was read lies in it."""

    waiting: deque[tuple[str, bytes, dict[str, str]]] = field(default_factory=deque)

    def append(self, subject: str, content: bytes, headers: Mapping[str, str] | None = None) -> int:
        """Publishes one message soon; its position is not known yet."""
        self.waiting.append((subject, content, dict(headers or {})))
        return 0

    def note(self, entry: Entry) -> None:
        """Takes the next message that was read."""
        self.entries.append(entry)


class Load:
    """Sends commands drawn from a seed, one after the other, each until it is stored."""

    def __init__(self, seed: int, facts: Facts, log: LiveLog) -> None:
        self._random = Random(seed)
        self._facts = facts
        self._log = log
        self.sender = Sender(self._random, log)
        self._machines = Machines(self._random, facts, self.sender, PROFILE)
        self._customers = Customers(self._random, facts, self.sender, self._machines, PROFILE)
        self.retries = 0

    @property
    def sent(self) -> list[SentCommand]:
        """Every command, in the order in which they were sent."""
        return self.sender.sent

    def begin(self) -> None:
        """The clusters, the limits, the machines and the first NodePools."""
        self._customers.register_clusters()
        self._customers.set_first_limits()
        self._machines.add_first()
        self._customers.apply_first()

    def act(self) -> None:
        """One thing that a customer does or a machine suffers."""
        if self.sender.delayed and self._random.random() < 0.5:
            self.sender.delayed.popleft()()
            return
        actions = self._actions()
        (name,) = self._random.choices(list(ACTIONS), list(ACTIONS.values()))
        actions[name]()

    def _actions(self) -> Mapping[str, Callable[[], None]]:
        customers, batches, machines = self._customers, self._customers.batches, self._machines
        return {
            **{name: getattr(batches, name) for name in ("line_up", "stay_wrong")},
            **{name: getattr(machines, name) for name in ("break_one", "repair_one")},
            **{name: getattr(customers, name) for name in ("apply", "scale", "delete")},
            **{name: getattr(customers, name) for name in ("change_limit", "delete_limit")},
            **{name: getattr(customers, name) for name in ("relabel", "retaint")},
            "batch": batches.send,
            "resend": self.sender.resend,
            "send_malformed": lambda: self.sender.send_malformed(customers.some_path()),
        }

    async def publish(self, connection: Connection) -> None:
        """Publishes what waits, until it is cancelled."""
        while True:
            if not self._log.waiting:
                await asyncio.sleep(RETRY_S)
                continue
            subject, content, headers = self._log.waiting[0]
            try:
                await api.publish(connection, subject, content, headers=headers, timeout_s=REPLY_S)
            except FAULTS:
                self.retries += 1
                await asyncio.sleep(RETRY_S)
            else:
                self._log.waiting.popleft()
