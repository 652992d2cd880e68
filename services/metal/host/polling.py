"""Reads the controllers again and again, and stores the observations that the log does not have.

Only the leading replica does so. It compares each reading with the log, so it stores an observation
again that got lost, and does not repeat an observation of another replica.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from metal.declaring import is_declared
from metal.host.managed import Managed, ManagedMachines
from metal.host.redfish.limits import Limits
from metal.host.replica import MetalReplica, Stored
from metal.host.term import NEVER, Polled, Term
from metal.machine import Machine
from metal.reading import ALL_PARTS, LOG_START, Part, Reading
from metal.replies import Failure, Trouble
from metal.sight import build_report, has_moved, is_news, recall_faults, see, without_secrets
from nodepool.contract.events import (
    ControllerReported,
    ControllerSilent,
    MachineCheckRequested,
    MachineDeclared,
    MachineUndeclared,
    PowerOverdue,
)
from nodepool.contract.grammar import TEXT_LIMIT
from nodepool.contract.keys import MachineKey, machine_parts
from nodepool.host.edge import FAULTS

Observation = MachineDeclared | MachineUndeclared | ControllerReported | ControllerSilent
"""An event that the poller stores about a machine."""
AWAITED_S: Final = 2.0
"""The pause between readings of a machine that is about to change, in seconds."""
COMPLETE_S: Final = 300.0
"""The pause between complete readings, even if nobody asks for one, in seconds."""
UNREAD_S: Final = 0.1
"""The pause until an observation that was stored has come back from the log, in seconds."""
FAILURES_MAX: Final = 2
"""A controller is silent after this number of failed calls in a row."""
AT_ONCE: Final = frozenset({Trouble.UNAUTHORIZED, Trouble.NO_CREDENTIAL, Trouble.UNTRUSTED})
"""Failures that do not end by themselves."""
TURN_S: Final = 0.5
"""The longest pause of the loop."""


class Poller:
    """Polls while its replica leads; each machine is read by one task at a time."""

    def __init__(
        self, replica: MetalReplica, machines: ManagedMachines, limits: Limits, poll_s: float
    ) -> None:
        self._replica = replica
        self._machines = machines
        self._poll_s = poll_s
        self._turn = asyncio.Event()
        self._says = asyncio.Semaphore(limits.at_once)
        self._term: Term | None = None
        self._held: Counter[MachineKey] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock = asyncio.get_running_loop().time

    def hear(self, stored: Stored) -> None:
        """Read a machine at once if a decision waits for that."""
        for item in stored.processed:
            for envelope in item.envelopes:
                if isinstance(envelope.data, MachineCheckRequested | PowerOverdue):
                    self.wake(envelope.data.machine_key)

    def wake(self, key: MachineKey) -> None:
        """Read a machine at once, if this replica polls."""
        if self._term is not None:
            self._term.put(key, self._clock())
            self._turn.set()

    @contextmanager
    def holding(self, key: MachineKey) -> Iterator[None]:
        """Read no machine behind the controller of this one: a power request must not wait."""
        held = self._machines.list_beside(key)
        for each in held:
            self._held[each] += 1
            polled = self._term.polled.get(each) if self._term is not None else None
            if polled is not None and polled.interrupt is not None:
                polled.interrupt()
        try:
            yield
        finally:
            self._held -= Counter(held)
            for each in held:
                self.wake(each)

    def begin(self) -> None:
        """Read all machines soon, because the inventory has changed."""
        if self._term is not None:
            self._spread(self._term)

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            while True:
                self._take_turn()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s()):
                        await self._turn.wait()
                self._turn.clear()
        finally:
            for task in self._tasks:
                task.cancel()

    def _take_turn(self) -> None:
        if not self._replica.is_leading or self._machines.inventory is None:
            self._end_term()
            return
        if self._term is None:
            self._term = Term()
            self._spread(self._term)
        for key in self._term.take(self._clock()):
            polled = self._term.polled[key]
            if polled.is_busy:
                self._term.put(key, self._clock() + UNREAD_S)
                continue
            polled.is_busy = True
            task = asyncio.create_task(self._visit(self._term, key, polled))
            self._tasks.add(task)
            task.add_done_callback(self._note_end)

    def _end_term(self) -> None:
        """Stop all readings, so that no power request of the next term waits for one of them."""
        polled = self._term.polled.values() if self._term is not None else ()
        self._term = None
        for each in polled:
            if each.interrupt is not None:
                each.interrupt()

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._replica.log.error("reading crashed", exc_info=task.exception())

    def _pause_s(self) -> float:
        queue = self._term.queue if self._term is not None else []
        return max(0.0, min(TURN_S, queue[0][0] - self._clock())) if queue else TURN_S

    def _spread(self, term: Term) -> None:
        """Schedule readings of all machines, declared now or earlier, spread over some time."""
        now = self._clock()
        keys = {*self._machines.keys()}
        keys |= {key for key, each in self._replica.state.machines.items() if each.declared}
        for key in keys:
            term.put(key, now + random.random() * min(self._poll_s, len(keys) / 100))

    async def _visit(self, term: Term, key: MachineKey, polled: Polled) -> None:
        """Look at one machine, and schedule its next reading."""
        pause = self._poll_s
        try:
            pause = await self._look(term, key, polled)
        except FAULTS as error:
            self._replica.log.warning("observation not stored", machine=key, cause=str(error))
        finally:
            polled.is_busy = False
            if self._term is term and pause < NEVER:
                term.put(key, self._clock() + pause * random.uniform(0.9, 1.1))
                self._turn.set()

    async def _look(self, term: Term, key: MachineKey, polled: Polled) -> float:
        """Store the news of one machine; return the pause until its next reading, in seconds."""
        if polled.said_at > self._replica.committed or key in self._held:
            return UNREAD_S
        managed, machine = self._machines.get(key), self._replica.machine(key)
        if managed is None:
            for other in term.twins.forget(key):
                self.wake(other)
            if machine.declared is None:
                del term.polled[key]
                return NEVER
            zone, name = machine_parts(key)
            return await self._say(term, polled, MachineUndeclared(zone=zone, machine=name))
        if not is_declared(machine.declared, managed.declaration):
            polled.forget()
            return await self._say(term, polled, managed.declaration)
        settled, checks = machine.settled, machine.checks
        is_complete = self._is_complete_due(machine, polled)
        task = asyncio.current_task()
        assert task is not None, "each visit is a task"
        polled.interrupt, began = task.cancel, self._clock()
        try:
            found = await self._read(managed, polled, is_complete=is_complete)
        finally:
            polled.interrupt = None
        self._count(found, self._clock() - began)
        if isinstance(found, Failure):
            event: Observation | None = self._note_failure(key, managed, polled, found)
        else:
            self._note_reading(term, key, polled, found, checks)
            event = self._find_news(term, key, managed, polled, settled)
        if event is not None and self._machines.get(key) is managed:
            return await self._say(term, polled, event)
        return AWAITED_S if _is_awaited(self._replica.machine(key)) else self._poll_s

    async def _say(self, term: Term, polled: Polled, event: Observation) -> float:
        """Store an observation, unless this replica does not lead any more."""
        async with self._says:
            if self._term is term and self._replica.is_leading:
                polled.said_at = await self._replica.say(event)
        return UNREAD_S

    def _count(self, found: Reading | Failure, seconds: float) -> None:
        """Count a reading, unless the controller is in a pause and was not asked."""
        has_failed = isinstance(found, Failure)
        if not (isinstance(found, Failure) and found.is_repeated):
            self._replica.figures.count_reading(seconds, has_failed=has_failed)

    def _is_complete_due(self, machine: Machine, polled: Polled) -> bool:
        is_late = self._clock() - polled.complete_at >= COMPLETE_S
        is_awaited = machine.check is not None and machine.checks > polled.check
        return is_late or is_awaited

    async def _read(
        self, managed: Managed, polled: Polled, *, is_complete: bool
    ) -> Reading | Failure:
        """Return a reading, with all parts if `is_complete`, or if power or boot have changed."""
        sight = polled.sight
        polled.is_complete = is_complete
        if not is_complete:
            found = await managed.controller.read(frozenset())
            if isinstance(found, Failure) or not has_moved(sight, found):
                return found
            polled.is_complete = True
        above = sight.above if sight is not None and sight.above is not None else LOG_START
        is_compared = bool(managed.known.expected.controller_version)
        parts = ALL_PARTS if is_compared else ALL_PARTS - {Part.CONTROLLER}
        return await managed.controller.read(parts, above)

    def _note_reading(
        self, term: Term, key: MachineKey, polled: Polled, found: Reading, checks: int
    ) -> None:
        """Remember a reading; checks: the number of the last check when it began."""
        machine = self._replica.machine(key)
        polled.failures, polled.trouble = 0, None
        if polled.is_complete:
            polled.note_complete(self._clock(), random.random() * COMPLETE_S)
            polled.note_check(machine, checks, self._replica.now(), is_whole=not found.unread)
        recalled, is_complete = recall_faults(machine), polled.is_complete
        polled.sight = see(polled.sight, found, recalled, is_complete=is_complete)
        for other in term.twins.note(key, found):
            self.wake(other)

    def _find_news(
        self, term: Term, key: MachineKey, managed: Managed, polled: Polled, settled: int
    ) -> ControllerReported | None:
        """Return the report of the last reading; None if the log has it."""
        assert polled.sight is not None, "a reading has come"
        seen = self._replica.machine(key).seen
        recalled = seen.stranger if seen is not None else ""
        report = build_report(
            managed.known,
            polled.sight,
            digest=managed.declaration.digest,
            settled=settled,
            check=polled.check,
            twin=term.twins.find(key, recalled, self._machines.keys()),
            was_running=seen is not None and seen.runs,
            is_unreadable=polled.is_unreadable,
        )
        report = without_secrets(report, managed.controller.hide)
        return report if is_news(self._replica.machine(key), report) else None

    def _note_failure(
        self, key: MachineKey, managed: Managed, polled: Polled, found: Failure
    ) -> ControllerSilent | None:
        """Return the silence of a controller; None if there is none, or the log has it."""
        machine = self._replica.machine(key)
        polled.failures += not found.is_repeated
        if polled.failures < FAILURES_MAX and found.trouble not in AT_ONCE:
            return None
        is_other = polled.trouble not in (None, found.trouble)
        polled.trouble = found.trouble
        if machine.silence and not is_other:
            return None
        cause = f"{found.trouble}: {found.text}"[:TEXT_LIMIT]
        zone, name = managed.known.zone, managed.known.name
        return ControllerSilent(zone=zone, machine=name, cause=cause)


def _is_awaited(machine: Machine) -> bool:
    """Return whether the next reading is needed soon."""
    stay = machine.stay
    is_booting = stay is not None and not stay.outcome
    is_under_way = machine.request is not None or machine.check is not None
    return is_booting or is_under_way or machine.wipe_due is not None
