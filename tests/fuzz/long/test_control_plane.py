"""Every service at work on a log to which anybody adds anything: nothing raises, nothing differs.

What is stored here may be believed, where it lies on the subject of the service that would say it:
only the server's permissions keep others from there. Even then no service stops, each command that
any of them hears has its one outcome, and a replay leads to the states that the services are in.
"""

import json
from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.bounded import bounded
from fuzz.corpus import RIGHT, content_like, headers, randoms
from nodepool.contract.log import MESSAGE_BYTES_MAX, Entry
from nodepool.contract.real_machines import PROVIDER
from nodepool.contract.services import SERVICES
from nodepool.contract.subjects import address_of, is_taken
from nodepool.engine.world import Host, World
from support.hostile import subjects
from support.services import NAMES, services
from support.world_harness import WorldHarness

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
SUBJECT_BYTES_MAX = 4_000
OUTCOMES = ("CommandAccepted", "CommandRefused")
ALL = (*NAMES, PROVIDER)
"""The services that answer commands between them: only `metal` answers those of real machines."""


def _world() -> World:
    """A small control plane at work: NodePools that wait, grow and lose a Node."""
    harness = WorldHarness(*services(*ALL))
    harness.given_data_center(machines=3, quota=4)
    harness.apply("p0", 2)
    harness.apply("p1", 2, computeClass="spot")
    harness.preempt("p1", "n3")
    harness.scale("p0", 1)
    return harness.world


class _Forger:
    """Adds to a log what may have something wrong in it; `foreign` has the positions of that."""

    def __init__(self, world: World, random: Random) -> None:
        self.foreign: set[int] = set()
        self._world = world
        self._random = random
        self._own = list(world.log.entries)

    def add(self) -> None:
        """Stores one message that a client could publish."""
        subject, content = self._message()
        if is_taken(subject) and len(content) <= MESSAGE_BYTES_MAX:
            before = len(self._world.log.entries)
            self._world.log.append(subject, content, headers(self._random))
            self.foreign.add(before + 1)

    def _message(self) -> tuple[str, bytes]:
        random = self._random
        if random.random() < 0.3:
            return self._output_of_open_input()
        match random.randrange(5):
            case 0:  # A recorded message of any kind, on its own subject.
                subject, document = random.choice(RIGHT)
            case 1:  # One of any kind, on another subject.
                own, document = random.choice(RIGHT)
                shaped = subjects.same_shape(random, own)
                subject = random.choice((shaped, subjects.subject(random)))
            case _:  # One of this log, so that what it names exists.
                entry = random.choice(self._own)
                subject, document = entry.subject, json.loads(entry.content)
                if random.random() < 0.3:
                    subject = subjects.same_shape(random, subject)
        if random.random() < 0.5:
            return subject, json.dumps(self._retold(document)).encode()
        if "data" not in document:
            document = {**document, "data": document}
        return subject, content_like(random, document)

    def _output_of_open_input(self) -> tuple[str, bytes]:
        """An event that a service has said, as its output of an input that is not processed yet."""
        random = self._random
        said = [entry for entry in self._own if entry.subject.startswith("np.evt.")]
        event = random.choice(said)
        document = json.loads(event.content)
        speaker = event.subject.split(".")[2]
        for host in self._world.hosts:
            if host.service.name == speaker:
                newest = self._world.log.entries[host.replica.committed :]
                heard = [entry.position for entry in newest if host.service.is_input(entry.subject)]
                document["causeposition"] = random.choice(heard or [len(self._world.log.entries)])
        return event.subject, json.dumps(document).encode()

    def _retold(self, document: dict[str, object]) -> dict[str, object]:
        """The same message as an output of another input, or under another id."""
        random = self._random
        newest = len(self._world.log.entries)
        changes = {
            "causeposition": newest - random.randrange(6),
            "id": f"{newest}.{random.choice(SERVICES)}.0",
            "position": newest - random.randrange(3),
            "follows": random.choice([0, *self._world.log.last.values()]),
        }
        known = {name: value for name, value in changes.items() if name in document}
        return {**document, **{n: v for n, v in known.items() if random.random() < 0.5}}


def _act(world: World, forger: _Forger, actions: Sequence[int]) -> None:
    """Adds foreign messages and lets replicas read and commit, in the order of these numbers."""
    for number in actions:
        host = world.hosts[number % len(world.hosts)]
        match number // len(world.hosts) % 4:
            case 0 | 1:
                forger.add()
            case 2:
                world.read(host, 1 + number % 7)
            case 3:
                _process(world, host)
    world.run_until_idle()


def _process(world: World, host: Host) -> None:
    proposal = host.replica.propose()
    if proposal is None:
        return
    for message in proposal.messages:
        assert len(message.content) <= MESSAGE_BYTES_MAX
        assert len(message.subject.encode()) < SUBJECT_BYTES_MAX
    host.replica.undo_proposal()
    world.process(host)


def _outcomes(world: World, foreign: set[int]) -> Counter[int]:
    """How many outcomes the services have stored, by the position of the command."""
    count: Counter[int] = Counter()
    for entry in world.log.entries:
        if entry.position not in foreign and entry.subject.endswith(OUTCOMES):
            count[json.loads(entry.content)["causeposition"]] += 1
    return count


def _expected(entry: Entry) -> int:
    """How many outcomes the command at an entry has; 0 for what is no command."""
    address = address_of(entry.subject)
    return int(address is not None and address.kind == "cmd")


@settings(suppress_health_check=SLOW, deadline=None)
@given(randoms, st.lists(st.integers(0, 250), min_size=1, max_size=60))
def test_nothing_that_lies_in_the_log_stops_a_service_or_makes_a_replay_differ(
    random: Random, actions: list[int]
) -> None:
    with bounded():
        world = _world()
        forger = _Forger(world, random)

        _act(world, forger, actions)

        assert world.replay_differs() == []
        outcomes = _outcomes(world, forger.foreign)
        wrong = {
            f"{entry.position} {entry.subject}": outcomes[entry.position]
            for entry in world.log.entries
            if outcomes[entry.position] != _expected(entry)
        }
        assert wrong == {}


def test_each_service_is_among_them() -> None:
    assert {host.service.name for host in _world().hosts} == {*ALL}
