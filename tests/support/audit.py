"""Reads a whole log and says what in it should never be, knowing nothing of how it came about."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from nodepool.contract.log import Entry
from nodepool.contract.subjects import address_of

Data = Mapping[str, object]


def faults(entries: Iterable[Entry]) -> list[str]:
    """Every breach of a promise, in the order in which the log shows it."""
    auditor = Auditor()
    return [fault for entry in entries for fault in auditor.see(entry)]


class Auditor:
    """Folds the log, one message after another, into who holds which machine."""

    def __init__(self) -> None:
        self.holders: dict[str, str] = {}
        self.held: Counter[str] = Counter()
        self.limits: dict[str, int] = {}
        self.said: dict[str, bytes] = {}
        self.committed: dict[str, int] = {}
        self.registered: set[str] = set()
        self.requested: set[tuple[str, str]] = set()
        self._types: dict[str, str] = {}

    def see(self, entry: Entry) -> Iterator[str]:
        """What is wrong with this message after all those before it."""
        if entry.subject.startswith("np.commit."):
            yield from self._commit(entry)
        address = address_of(entry.subject)
        if address is None or address.kind != "evt":
            return
        envelope = json.loads(entry.content)
        yield from self._once(envelope, entry)
        for fault in self._node(address.name, envelope["data"]):
            yield f"{entry.position} {address.name}: {fault}"

    def _commit(self, entry: Entry) -> Iterator[str]:
        position = int(json.loads(entry.content)["position"])
        if position < self.committed.get(entry.subject, 0):
            yield f"{entry.position}: {entry.subject} went back to {position}"
        self.committed[entry.subject] = position

    def _once(self, envelope: Mapping[str, object], entry: Entry) -> Iterator[str]:
        id = str(envelope["id"])
        if id in self.said:
            yield f"{entry.position}: {id} was said before"
        self.said[id] = b""

    def _node(self, name: str, data: Data) -> Iterator[str]:
        pool = "/".join(str(data.get(part)) for part in ("org", "cluster", "pool"))
        machine = f"{data.get('zone')}/{data.get('node')}"
        match name:
            case "CWNodeAssigned":
                if machine in self.holders:
                    yield f"{machine} is held by {self.holders[machine]}, and given to {pool}"
                self.holders[machine] = pool
                yield from self._taken(data, machine)
            case "CWNodeRegistered":
                if self.holders.get(machine) != pool or machine in self.registered:
                    yield f"{machine} is registered in {pool} out of turn"
                self.registered.add(machine)
            case "CWNodeDeletionRequestSuccess":
                self.requested.add((pool, machine))
            case "CWNodeDeleted" | "CWNodeRegistrationFailed":
                if self.holders.pop(machine, None) != pool:
                    yield f"{machine} leaves {pool}, which does not hold it"
                if name == "CWNodeDeleted" and (pool, machine) not in self.requested:
                    yield f"{machine} leaves {pool} unannounced"
                self.registered.discard(machine)
                self.requested.discard((pool, machine))
                self.held[self._types.pop(machine, "")] -= 1
            case "QuotaSet":
                ledger = f"{data['org']}/{data['zone']}/{data['instanceType']}"
                self.limits[ledger] = int(str(data["limit"]))

    def _taken(self, data: Data, machine: str) -> Iterator[str]:
        ledger = f"{data['org']}/{data['zone']}/{data['instanceType']}"
        self._types[machine] = ledger
        self.held[ledger] += 1
        limit = self.limits.get(ledger, 0)
        if self.held[ledger] > limit:
            yield f"{ledger} holds {self.held[ledger]} Nodes under a limit of {limit}"
