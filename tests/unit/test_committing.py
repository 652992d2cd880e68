"""Processing inputs: what is committed, when, and what each result of a commit means."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodepool.contract.log import Entry
from nodepool.engine.proposal import Outgoing, Proposal
from nodepool.engine.replica import Replica
from nodepool.host.batch_size import BatchSize
from nodepool.host.committing import QUIET_S, Committing, Stale
from nodepool.host.doubts import Doubts
from nodepool.host.host import Host
from nodepool.host.leadership import CLAIM_S, STALE_S, STANDBY_S, Leadership
from nodepool.host.projector import Projector
from nodepool.host.settings import Settings
from nodepool.host.snapshots import SNAPSHOT_AFTER, Snapshots
from nodepool.host.source import Source
from nodepool.host.telemetry import Telemetry
from nodepool.host.timers import Timers
from nodepool.nats.log.commits import MARK
from nodepool.nats.wire.errors import Conflict, InDoubt, ServerRefusal
from quota import Hears, Says
from quota.decide import SERVICE
from quota.state import State
from support.proposals import NOON, command_entry, wake_entry


class FreshTimers(Timers):
    """Timers of a replica that processes each `Wake` in the moment in which it is stored."""

    def is_old(self, position: int, now: float) -> bool:
        """Return False."""
        return False


class Bench:
    """A replica of the quota service with a log in memory, and a clock that is set by hand.

    error: what the next commit raises. lost_reply: whether it is stored nonetheless.
    log: where the lines about inputs are.
    heard: the inputs of each commit that was heard of as stored.
    """

    def __init__(self, telemetry: Telemetry, log: Path) -> None:
        self.now = 1_000.0
        self.position = 0
        self.commits: list[Proposal[State, Hears]] = []
        self.in_flight: list[bool] = []
        self.error: Exception | None = None
        self.lost_reply = False
        self.log = log
        self.unread: list[Entry] = []
        self.replica = Replica(SERVICE)
        self.leadership = Leadership()
        self.leadership.caught_up(self.now)
        self.telemetry = telemetry
        self.timers = FreshTimers()
        snapshots = Snapshots(SNAPSHOT_AFTER, telemetry.log)
        self.host: Host[State, Hears, Says] = Host(
            SERVICE, Settings(), telemetry, snapshots, asyncio.Event(), BatchSize(), Doubts()
        )
        self.heard: list[int] = []
        self.host.on_stored.append(self._hear)
        self.committing = self.new_session()

    def _hear(self, proposal: Proposal[State, Hears]) -> None:
        self.heard += [each.input.entry.position for each in proposal.processed]

    def new_session(self) -> Committing[State, Hears, Says]:
        """What commits in a new session of the same process."""
        return Committing(
            self.replica,
            self._commit,
            self.leadership,
            Projector(None),
            self.host,
            lambda: self.now,
            self.timers,
        )

    async def _commit(self, proposal: Proposal[State, Hears]) -> int:
        self.in_flight.append(self.committing.in_flight)
        error, self.error = self.error, None
        if error is None or self.lost_reply:
            self.commits.append(proposal)
            self.unread = self._stored(proposal, {MARK: self.host.doubts.mark})
        if error is not None:
            raise error
        return self.position

    def _stored(self, proposal: Proposal[State, Hears], headers: Mapping[str, str]) -> list[Entry]:
        """What the log has of a commit now."""
        record = Outgoing(proposal.subject, "", proposal.record())
        entries = []
        for message in (*proposal.messages, record):
            self.position += 1
            entries.append(Entry(self.position, NOON, message.subject, message.content, headers))
        return entries

    def read_own_commit(self, *, caught_up: bool = True) -> None:
        """The replica reads what the log has of the last commit."""
        for entry in self.unread:
            if self.replica.read(entry):
                self.committing.handle_unknown_commit(entry, self.now, caught_up=caught_up)

    def command(self) -> int:
        """A command arrives, which has outputs; its position."""
        self.position += 1
        self._arrived(command_entry(self.position))
        return self.position

    def quiet_input(self) -> int:
        """An input arrives that has no output; its position."""
        self.position += 1
        self._arrived(wake_entry(self.position))
        return self.position

    def _arrived(self, entry: Entry) -> None:
        if not self.replica.open:
            self.leadership.input_arrived(self.now)
        self.replica.read(entry)

    def read_commit_of_another(self, position: int) -> None:
        """Another replica has processed everything up to here."""
        self.position += 1
        content = b'{"position": %d}' % position
        record = Entry(self.position, NOON, "np.commit.quota", content, {})
        assert self.replica.read(record)
        self.committing.handle_unknown_commit(record, self.now, caught_up=True)

    def reconnected(self) -> None:
        """Another session of the same process begins, at the state that the last one had stored."""
        before = self.replica
        self.replica = Replica(
            SERVICE, before.safe, before.committed, before.expected_sequence, log=before.log
        )
        self.leadership = Leadership()
        self.committing = self.new_session()

    def restarted(self) -> "Bench":
        """A replica that has read the same log in a new process."""
        fresh = Bench(self.telemetry, self.log)
        fresh.now, fresh.position = self.now, self.position
        fresh.replica = Replica(
            SERVICE, self.replica.safe, self.replica.committed, self.replica.expected_sequence
        )
        fresh.committing = fresh.new_session()
        return fresh

    def run(self) -> int:
        """What the runtime does in each turn; how many inputs were processed."""
        return asyncio.run(self.committing.run())

    def results(self, result: str) -> float | None:
        """How many commits ended like this."""
        labels = {"nodepool_service": "quota", "result": result}
        return self.telemetry.metrics.page.registry.get_sample_value(
            "nodepool_commits_total", labels
        )

    def processed(self, outcome: str) -> float:
        """How many commands are counted with this outcome."""
        labels = {"nodepool_service": "quota", "message": "SetQuota", "outcome": outcome}
        name = "nodepool_messages_processed_total"
        return self.telemetry.metrics.page.registry.get_sample_value(name, labels) or 0

    def logged(self) -> list[tuple[object, object]]:
        """The position and the outcome of each input that has a line."""
        lines = map(json.loads, self.log.read_text().splitlines())
        return [(line["position"], line["outcome"]) for line in lines if "position" in line]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "quota.log"
    telemetry = Telemetry(SERVICE, Settings(log_file=str(path)), Source())
    yield Bench(telemetry, path)
    telemetry.close()


# --- what is committed, and when ----------------------------------------------------------------


def test_open_inputs_are_committed_together(bench: Bench) -> None:
    # given two commands, and a replica that has committed before
    bench.command()
    bench.run()
    bench.command()
    last = bench.command()

    # when the replica has its turn
    processed = bench.run()

    # then one commit processes both
    assert processed == 2
    assert [proposal.position for proposal in bench.commits] == [1, last]
    assert bench.replica.committed == last
    assert bench.replica.expected_sequence == bench.position
    assert bench.results("stored") == 2


def test_commits_grow_from_one_input_so_that_one_that_ends_the_process_is_found(
    bench: Bench,
) -> None:
    # given many inputs, among them some without an output
    positions = [bench.command() if number % 3 else bench.quiet_input() for number in range(40)]

    # when the replica has its first turn
    bench.run()

    # then each commit processes twice as many as the one before it
    assert [proposal.position for proposal in bench.commits] == [
        positions[number] for number in (0, 2, 6, 14, 30, 39)
    ]


def test_commits_are_as_large_after_a_lost_connection_as_before(bench: Bench) -> None:
    # given a process that has made commits, and has a new session
    for _ in range(7):
        bench.command()
    bench.run()
    bench.committing = bench.new_session()

    # when there are many inputs
    last = [bench.command() for _ in range(8)][-1]
    bench.run()

    # then one commit processes them
    assert [proposal.position for proposal in bench.commits][3:] == [last]


def test_after_a_refusal_commits_grow_faster(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a commit that the server refuses
    monkeypatch.setattr("nodepool.host.committing.BACK_OFF_S", 0.0)
    bench.command()
    bench.error = ServerRefusal(10167, "too many requests")
    bench.run()

    # when there are many inputs
    last = [bench.command() for _ in range(72)][-1]
    bench.run()

    # then they need few commits, of which the first has one input
    assert [len(proposal.processed) for proposal in bench.commits] == [1, 8, 64]
    assert bench.replica.committed == last


def test_a_commit_is_in_flight_until_its_result_is_known(bench: Bench) -> None:
    # given a command
    bench.command()

    # when it is committed
    bench.run()

    # then the commit was in flight, and is not any more
    assert bench.in_flight == [True]
    assert not bench.committing.in_flight


def test_a_turn_without_inputs_commits_nothing(bench: Bench) -> None:
    # given nothing
    # when the replica has its turn
    # then nothing happens, and nothing is to be waited for
    assert bench.run() == 0
    assert bench.commits == []
    assert bench.committing.seconds_left(bench.now) is None


def test_quiet_inputs_are_committed_after_a_while(bench: Bench) -> None:
    # given an input without outputs
    position = bench.quiet_input()

    # when the replica has its turn
    assert bench.run() == 1

    # then it is processed, and not committed yet
    assert bench.commits == []
    assert bench.replica.quiet == 1
    assert bench.committing.seconds_left(bench.now) == pytest.approx(QUIET_S)

    # and after a while a commit moves the cursor past it
    bench.now += QUIET_S
    assert bench.run() == 0
    assert bench.replica.committed == position
    assert bench.replica.quiet == 0


def test_the_wait_of_quiet_inputs_is_counted_from_the_first(bench: Bench) -> None:
    # given an input without outputs
    bench.quiet_input()
    bench.run()

    # when another one follows it
    bench.now += QUIET_S / 2
    last = bench.quiet_input()
    bench.run()

    # then both are committed when the first has waited long enough
    bench.now += QUIET_S / 2
    bench.run()
    assert bench.replica.committed == last


def test_quiet_inputs_go_with_the_next_commit(bench: Bench) -> None:
    # given an input without outputs, processed
    bench.quiet_input()
    bench.run()

    # when a command follows it
    last = bench.command()
    bench.run()

    # then its commit covers both
    assert bench.replica.committed == last
    assert bench.replica.quiet == 0
    assert len(bench.commits) == 1


def test_a_replica_that_stops_commits_its_quiet_inputs(bench: Bench) -> None:
    # given an input without outputs, processed
    position = bench.quiet_input()
    bench.run()

    # when the replica stops
    asyncio.run(bench.committing.finish())

    # then nothing has to process it again
    assert bench.replica.committed == position


# --- claiming -----------------------------------------------------------------------------------


def test_a_replica_that_meets_no_other_says_by_an_empty_commit_that_it_leads(bench: Bench) -> None:
    # given a replica that has processed a command in an earlier life, and has nothing to do
    position = bench.command()
    bench.run()
    fresh = bench.restarted()

    # when no replica commits for a while
    fresh.now += CLAIM_S
    assert fresh.run() == 0

    # then it leads, and nothing else has changed
    assert fresh.leadership.leading
    assert fresh.replica.committed == position
    assert [(it.position, it.messages) for it in fresh.commits] == [(position, [])]

    # and it says so once
    fresh.now += CLAIM_S
    assert fresh.run() == 0
    assert len(fresh.commits) == 1


def test_of_two_replicas_that_claim_at_once_the_one_that_is_refused_follows(bench: Bench) -> None:
    # given two idle replicas that wait equally long
    bench.now += CLAIM_S
    bench.error = Conflict("the other one was first")

    # when the commit of this one is refused
    bench.run()

    # then it follows, and does not claim again
    assert not bench.leadership.leading
    assert bench.leadership.following
    bench.read_commit_of_another(0)
    bench.now += 2 * CLAIM_S
    bench.run()
    assert bench.commits == []


def test_a_replica_with_inputs_commits_them_instead_of_a_claim(bench: Bench) -> None:
    # given a replica that has waited long, and an input without outputs that has not
    bench.now += CLAIM_S
    position = bench.quiet_input()

    # when it has its turns
    bench.run()
    bench.now += QUIET_S
    bench.run()

    # then its one commit covers the input
    assert [proposal.position for proposal in bench.commits] == [position]
    assert bench.leadership.leading


# --- following ----------------------------------------------------------------------------------


def test_a_follower_commits_only_what_the_leader_leaves_unprocessed(bench: Bench) -> None:
    # given a follower with a command
    bench.read_commit_of_another(bench.command())
    bench.command()

    # when it has its turn
    # then it leaves the command to the leader
    assert bench.run() == 0
    assert bench.commits == []
    assert bench.committing.seconds_left(bench.now) == pytest.approx(STANDBY_S)

    # and takes over when the leader does nothing
    bench.now += STANDBY_S
    assert bench.run() == 1
    assert bench.leadership.leading


def test_a_follower_that_takes_over_commits_quiet_inputs_at_once(bench: Bench) -> None:
    # given a follower with an input without outputs
    bench.read_commit_of_another(bench.command())
    position = bench.quiet_input()

    # when the leader does nothing for a while
    bench.now += STANDBY_S
    bench.run()

    # then the cursor is moved, so that the leader can see who leads
    assert bench.replica.committed == position
    assert bench.leadership.leading


def test_a_follower_that_stops_commits_nothing(bench: Bench) -> None:
    # given a replica with a quiet input, which has become a follower
    bench.quiet_input()
    bench.run()
    bench.leadership.note_foreign_commit(bench.now, caught_up=True)

    # when it stops
    asyncio.run(bench.committing.finish())

    # then the input is left to the leader
    assert bench.commits == []


# --- results ------------------------------------------------------------------------------------


def test_after_a_conflict_a_replica_follows_and_waits_for_the_other_commit(bench: Bench) -> None:
    # given a command that another replica commits first
    position = bench.command()
    bench.error = Conflict("wrong last sequence")

    # when this one commits it too
    assert bench.run() == 0

    # then it follows, and commits nothing before it has read the other commit
    assert bench.results("conflict") == 1
    assert not bench.leadership.leading
    bench.now += STANDBY_S
    assert bench.run() == 0
    assert bench.commits == []

    # and goes on from there
    bench.read_commit_of_another(position)
    assert bench.replica.committed == position
    assert bench.replica.open == 0


def test_a_conflict_whose_other_commit_is_not_in_the_log_is_stale(bench: Bench) -> None:
    # given a replica after a conflict
    bench.command()
    bench.error = Conflict("wrong last sequence")
    bench.run()

    # when the other commit is not read for long
    bench.now += STALE_S + 1

    # then the replica has to begin anew
    with pytest.raises(Stale):
        bench.run()


def test_after_a_commit_in_doubt_the_same_is_proposed_again(bench: Bench) -> None:
    # given a command whose commit has no reply
    position = bench.command()
    bench.error = InDoubt("the connection was lost")

    # when the replica has its turn
    assert bench.run() == 0

    # then nothing is taken for committed, and it follows no other
    assert bench.results("in_doubt") == 1
    assert bench.replica.committed == 0
    assert not bench.leadership.following

    # and the next turn commits the same inputs
    assert bench.run() == 1
    assert bench.replica.committed == position

    # and each is counted and logged once
    assert (bench.processed("stored"), bench.logged()) == (1, [(position, "stored")])


def test_a_commit_in_doubt_that_was_stored_is_counted_and_logged_when_it_is_read(
    bench: Bench,
) -> None:
    # given commands whose commit is stored, and has no reply
    bench.command()
    bench.run()
    first, second = bench.command(), bench.command()
    bench.error, bench.lost_reply = InDoubt("the connection was lost"), True
    assert bench.run() == 0
    assert bench.processed("stored") == 1

    # when what it has stored is read
    bench.read_own_commit()

    # then they are counted and logged as stored, and the replica leads as it did
    assert bench.processed("stored") == 3
    assert bench.logged() == [(1, "stored"), (first, "stored"), (second, "stored")]
    assert bench.replica.committed == second
    assert bench.leadership.leading

    # and nothing is left of it
    bench.lost_reply = False
    bench.read_own_commit()
    assert bench.run() == 0
    assert bench.processed("stored") == 3
    assert bench.heard == [1, first, second]


def test_a_commit_in_doubt_that_was_stored_and_is_tried_again_is_counted_once(
    bench: Bench,
) -> None:
    # given a command whose commit is stored and has no reply, and one more that arrives
    first = bench.command()
    bench.error, bench.lost_reply = InDoubt("the connection was lost"), True
    bench.run()
    bench.lost_reply = False
    second = bench.command()

    # when the commit of both is refused, since the first is stored, and that one is read
    bench.error = Conflict("wrong last sequence")
    bench.run()
    assert bench.leadership.following
    bench.read_own_commit()

    # then the first is counted, and the replica leads and goes on with the second
    assert (bench.processed("stored"), bench.logged()) == (1, [(first, "stored")])
    assert bench.leadership.leading
    assert bench.run() == 1
    assert bench.logged() == [(first, "stored"), (second, "stored")]
    assert bench.heard == [first, second]


def test_a_commit_in_doubt_in_whose_place_another_replica_has_committed_is_not_counted(
    bench: Bench,
) -> None:
    # given a command whose commit is not stored and has no reply
    position = bench.command()
    bench.error = InDoubt("the connection was lost")
    bench.run()

    # when the commit of another replica that has processed it is read
    bench.read_commit_of_another(position)

    # then that one counts it
    assert (bench.processed("stored"), bench.logged(), bench.heard) == (0, [], [])
    assert bench.replica.committed == position
    assert not bench.leadership.leading


def test_a_commit_in_doubt_is_counted_in_the_next_session_too(bench: Bench) -> None:
    # given a command that is committed, and one whose commit is stored and has no reply
    first = bench.command()
    bench.run()
    before = bench.unread
    second = bench.command()
    bench.error, bench.lost_reply = InDoubt("the connection was lost"), True
    bench.run()

    # when a new session begins before both, and reads the log
    bench.replica = Replica(SERVICE)
    bench.reconnected()
    bench.unread = [command_entry(first), *before, command_entry(second), *bench.unread]
    bench.read_own_commit(caught_up=False)

    # then each is counted and logged once, and who leads is open
    assert bench.replica.committed == second
    assert bench.logged() == [(first, "stored"), (second, "stored")]
    assert bench.processed("stored") == 2
    assert bench.heard == [first, second]
    assert not bench.leadership.leading


def test_an_empty_commit_in_doubt_that_was_stored_is_known_again(bench: Bench) -> None:
    # given a replica that says that it leads, and has no reply
    bench.now += CLAIM_S
    bench.error, bench.lost_reply = InDoubt("the connection was lost"), True
    bench.run()
    assert bench.results("in_doubt") == 1

    # when it reads its own commit
    bench.read_own_commit()

    # then it leads
    assert bench.leadership.leading
    assert bench.logged() == []


def test_after_a_refusal_the_same_is_proposed_again_in_smaller_commits(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given commands whose commit the server refuses, after one that it took
    monkeypatch.setattr("nodepool.host.committing.BACK_OFF_S", 0.0)
    bench.command()
    bench.run()
    positions = [bench.command() for _ in range(3)]
    bench.error = ServerRefusal(10167, "too many requests")

    # when the replica has its turn
    assert bench.run() == 0
    assert bench.results("failed") == 1

    # then the next turn commits the same inputs, the first alone: so few find room first
    assert bench.run() == 3
    committed = [proposal.position for proposal in bench.commits[1:]]
    assert committed == [positions[0], positions[2]]
