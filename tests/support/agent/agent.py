"""An agent in memory: what it knows of both sides, and one action of it at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from agent.actions import (
    Action,
    Attempt,
    Create,
    Delete,
    Patch,
    Place,
    RecordEvent,
    Send,
)
from agent.host.commander import shows_pool
from agent.host.log import origin_in
from agent.host.performing import kubernetes_event
from agent.pools.actions import missing_for_pool
from agent.pools.agreement import AGREED, agreement_of, is_unresolved
from agent.pools.objects import Log, PoolObject, WantedPool, pool_object, wanted_pool
from agent.pools.sides import NOT_DELETED, Deletion, Facts, Origin
from nodepool.client.accepted import DELETED, DELETING, VALIDATED, Accepted, accepted_by
from nodepool.contract.commands import ApplyNodePool
from nodepool.contract.events import CommandAccepted, CommandRefused, CWNodePoolDeleted
from nodepool.contract.messages import Command
from support.agent.api_server import ApiError, ApiServer
from support.constants import CLUSTER, ORG, ZONE
from support.world_harness import WorldHarness

Compare = Callable[..., Sequence[Action]]
PLACE = Place(ORG, CLUSTER, ZONE)


@dataclass
class Sides:
    """Both sides: the services over a log in memory, and the API server.

    sent: every command that an agent has sent, by its id.
    """

    bus: WorldHarness
    api: ApiServer
    sent: dict[str, Command] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The position of the newest message of the log."""
        return len(self.bus.world.log.entries)

    def pools(self) -> dict[str, WantedPool]:
        """The NodePools of the bus by name."""
        found = self.bus.documents("nodepools")
        names = {key: key.rpartition("/")[2] for key in found}
        return {names[key]: wanted_pool(document, names[key]) for key, document in found.items()}

    def objects(self) -> dict[str, PoolObject]:
        """The objects of the cluster by name."""
        return {name: pool_object(item) for name, item in self.api.objects.items()}

    def deleted(self, name: str) -> Deletion:
        """With which event a NodePool of this name was deleted last."""
        for envelope in reversed(self.bus.world.envelopes(CWNodePoolDeleted)):
            event = envelope.data
            if isinstance(event, CWNodePoolDeleted) and event.pool == name:
                position = self.bus.world.log.last.get(
                    f"np.evt.validator.{ORG}.{CLUSTER}.{name}.CWNodePoolDeleted", 0
                )
                return Deletion(position, event.uid)
        return NOT_DELETED

    def origins(self, name: str, agreed: int) -> list[Origin]:
        """Return the states of a NodePool after a position of the log, the oldest first."""
        subject = f"np.evt.validator.{ORG}.{CLUSTER}.{name}.NodePoolValidated"
        entries = [each for each in self.bus.world.log.entries if each.subject == subject]
        return [origin_in(each) for each in entries if each.position > agreed] or [
            origin_in(each) for each in entries[-1:]
        ]

    def accepted(self, name: str) -> Accepted | None:
        """Return what the log says now of a NodePool."""
        log = self.bus.world.log
        subjects = [
            f"np.evt.{service}.{ORG}.{CLUSTER}.{name}.{event}"
            for service, event in (VALIDATED, DELETING, DELETED)
        ]
        positions = [log.last.get(subject, 0) for subject in subjects]
        entries = [log.entries[at - 1] if at else None for at in positions]
        return accepted_by(*entries)

    def outcome(self, id: str) -> Attempt | None:
        """What became of a command; None while it has no outcome.

        As in a process, the NodePool is known to be shown later; one that was not changed is.
        """
        for envelope in reversed(self.bus.world.envelopes(CommandAccepted, CommandRefused)):
            if envelope.correlationid != id:
                continue
            match envelope.data:
                case CommandRefused(reason=reason, field=where, message=message):
                    return Attempt(id, "refused", True, reason, where, message)
                case CommandAccepted(result=result):
                    return Attempt(id, "accepted", is_shown=result == "unchanged")
        return None


@dataclass
class MemoryAgent:
    """One process of the agent.

    compare: computes what is missing.
    pools, objects: what it knows of either side.
    removed: the objects that were deleted while it looked, and have no successor.
    agreed: the agreement that it has seen on each object last, by the uid of that.
    seen, start: the end of the log when it read the bus last.
    attempts: the commands that it has sent, with what the log said when it heard their outcome; of
      a refusal, and of a command that changed nothing, `is_shown` says that it waits for no more.
    plan: what it has begun to carry out, with the name of the NodePool.
    carried_out, done: how many actions it has carried out, and the last as a text.
    """

    sides: Sides
    compare: Compare = missing_for_pool
    pools: dict[str, WantedPool] = field(default_factory=dict)
    objects: dict[str, PoolObject] = field(default_factory=dict)
    seen: int = 0
    start: int = 0
    removed: dict[str, PoolObject] = field(default_factory=dict)
    agreed: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, tuple[Attempt, Accepted | None]] = field(default_factory=dict)
    plan: list[tuple[str, Action]] = field(default_factory=list)
    carried_out: int = 0
    done: str = ""

    def restart(self) -> None:
        """It loses all that it knows, and reads both sides."""
        for known in (self.attempts, self.objects, self.removed, self.agreed):
            known.clear()
        self.plan.clear()
        self.look()

    def look(self) -> None:
        """Reads both sides."""
        self.look_at_bus()
        self.look_at_cluster()

    def look_at_bus(self) -> None:
        """Reads the bus."""
        self.hear()
        self.pools, self.seen = self.sides.pools(), self.sides.end
        self.start = self.seen  # It reads all of it at once.

    def look_at_cluster(self, only: str = "") -> None:
        """Reads the cluster, or one object of it."""
        before, shown = self.objects, self.sides.objects()
        if only:
            others = {name: found for name, found in before.items() if name != only}
            shown = others | {name: found for name, found in shown.items() if name == only}
        self.objects = shown
        for name, found in self.objects.items():
            self.removed.pop(name, None)
            if AGREED in found.annotations:
                self.agreed[found.uid] = found.annotations[AGREED]
            self.objects[name] = replace(found, agreed=self.agreed.get(found.uid, ""))
        self.removed |= {name: before[name] for name in before.keys() - self.objects.keys()}

    def missing(self, name: str) -> list[Action]:
        """What it finds missing for a NodePool."""
        log = Log(self.sides.bus.world.log.id, self.sides.end, self.start)
        wanted, found = self.pools.get(name), self.objects.get(name)
        attempt, origins = self._attempt(name), list[Origin]()
        agreement = None if found is None else agreement_of(found)
        is_hidden = wanted is None and agreement is not None and agreement.uid != ""
        if agreement is not None and (is_hidden or is_unresolved(agreement, attempt)):
            origins = self.sides.origins(name, agreement.version)
        facts = Facts(self.sides.deleted(name), self.removed.get(name), origins=origins)
        return list(self.compare(name, wanted, found, attempt, log, PLACE, facts))

    def hear(self) -> None:
        """Hears the outcomes of what it has sent, and asks what the log says with each."""
        for name, (attempt, _) in self.attempts.items():
            outcome = None if attempt.outcome else self.sides.outcome(attempt.id)
            if outcome is not None:
                heard = replace(outcome, command=attempt.command)
                self.attempts[name] = heard, self.sides.accepted(name)

    def _attempt(self, name: str) -> Attempt | None:
        self.hear()
        if name not in self.attempts:
            return None
        attempt, accepted = self.attempts[name]
        deleted = self.sides.deleted(name).position
        pool = self.pools.get(name)
        is_shown = bool(attempt.outcome) and shows_pool(
            pool, accepted, deleted, has_waited=attempt.is_shown
        )
        return replace(attempt, is_shown=is_shown)

    def names(self) -> list[str]:
        """Everything that there is to compare."""
        return sorted({*self.pools, *self.objects})

    def step(self, choose: Callable[[list[str]], str] = lambda names: names[0]) -> bool:
        """Carries out one action; False where it finds nothing missing anywhere."""
        if not self.plan:
            names = self.names()
            while names:
                name = choose(names)
                names.remove(name)
                if actions := self.missing(name):
                    self.plan = [(name, action) for action in actions]
                    break
            else:
                return False
        name, action = self.plan.pop(0)
        self.carried_out += 1
        self.done = f"{name}: {_short(action)}"
        try:
            self._perform(name, action)()
            self._take(name, action)
        except ApiError as error:
            self.done += f": {error}"
            self.plan.clear()
            if str(error) == "Invalid":
                raise AssertionError(f"the API server refuses {action}") from None
        return True

    def _take(self, name: str, action: Action) -> None:
        """Takes the object as the API server replied that it is after a write."""
        if isinstance(action, Create | Patch | Delete):
            self.look_at_cluster(name)

    def _perform(self, name: str, action: Action) -> Callable[[], object]:
        api = self.sides.api
        match action:
            case Send(id=id, command=command):
                return partial(self._send, name, id, command)
            case Create(document=document):
                return partial(api.create, document)
            case Patch(patch=patch, subresource=subresource):
                return partial(api.patch, name, patch, subresource)
            case Delete(uid=uid, version=version):
                return partial(api.delete, name, uid, version)
            case RecordEvent():
                return partial(api.events.setdefault, kubernetes_event(action).name, action.message)
            case _:
                raise AssertionError(f"{action} is not about a NodePool")

    def _send(self, name: str, id: str, command: Command) -> None:
        before = self.sides.sent.setdefault(id, command)
        assert _intent(before) == _intent(command), f"{id} stands for {before} and {command}"
        self.sides.bus.world.send(command, id)
        self.attempts[name] = Attempt(id, command=command), None


def _intent(command: Command) -> object:
    """What a command wants, whatever it was read from."""
    if isinstance(command, ApplyNodePool):
        return command.path, command.spec, command.metadata.labels, command.create_only
    return type(command), command.path


def _short(action: Action) -> str:
    match action:
        case Send(id=id, command=command):
            return f"Send {type(command).__name__} {id}"
        case Patch(patch=patch, subresource=subresource):
            return f"Patch {subresource} {patch}"
        case RecordEvent(message=message):
            return f"RecordEvent {message}"
        case _:
            return f"{type(action).__name__}"
