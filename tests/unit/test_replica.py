import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.contract.commands import SetQuota
from nodepool.contract.events import CommandRefused, MachineAdded, QuotaSet, Wake
from nodepool.contract.messages import Command, Message, envelope_of
from nodepool.contract.subjects import subject_of
from nodepool.engine.replica import (
    CLOCK,
    INPUTS_MAX,
    LETTER_MAX,
    QUIET_MAX,
    Proposal,
    Replica,
    wake,
)
from nodepool.engine.world import Log
from nodepool.service import IMMEDIATELY, OUTPUTS_MAX, Context, Failure, Service, refused

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MISTAKE, LATE_MISTAKE = 666_666, 777_777
"""Limits on which the service under test breaks: while deciding, and while folding."""


@dataclass(frozen=True)
class State:
    """What the service under test remembers: machines seen, and what it said, in order."""

    machines: int = 0
    said: tuple[int, ...] = ()
    woken: int = 0


def evolve(state: State, message: Message, _now: Context) -> State:
    """Counts machines and keeps what was said."""
    match message:
        case SetQuota(limit=limit):
            if limit == LATE_MISTAKE:
                raise RuntimeError("cannot be folded")
        case MachineAdded():
            return replace(state, machines=state.machines + 1)
        case QuotaSet(granted=granted):
            return replace(state, said=(*state.said, granted))
        case Wake():
            return replace(state, woken=state.woken + 1)
    return state


def decide(state: State, message: Message, _now: Context) -> Iterator[Message]:
    """As many outputs as the command's limit asks for; nothing to anything else."""
    if isinstance(message, SetQuota):
        if message.limit == MISTAKE:
            raise RuntimeError("an invariant is broken")
        for number in range(message.limit):
            yield said(len(state.said) + number, limit=message.limit)


def wakes(state: State) -> datetime | None:
    """At once for each machine that no wake has come for."""
    return IMMEDIATELY if state.woken < state.machines else None


def on_failure(failure: Failure) -> Iterable[Message]:
    """A command that cannot be taken is refused."""
    if failure.is_command:
        yield refused(failure)


SERVICE = Service(
    name="quota",
    hears=SetQuota | MachineAdded | Wake,
    says=QuotaSet | CommandRefused,
    initial=State(),
    evolve=evolve,
    decide=decide,
    wakes=wakes,
    on_failure=on_failure,
)


def said(granted: int, limit: int = 1) -> QuotaSet:
    """An output of the service under test."""
    return QuotaSet(org="acme", zone="z", instance_type="t", limit=limit, granted=granted)


def ask(log: Log, limit: int = 1, id: str = "") -> int:
    """Puts an input on the log that is processed `limit` times; its position."""
    return put(log, SetQuota(org="acme", zone="z", instance_type="t", limit=limit), "", id)


def note(log: Log) -> int:
    """Puts an input on the log that is never processed; its position."""
    machine = f"m{len(log.entries)}"
    return put(log, MachineAdded(zone="z", machine=machine, instance_type="t"), "fleet")


def put(log: Log, message: Message, service: str, id: str = "", cause: int | None = None) -> int:
    """Puts a message on the log as a service or a client does; its position."""
    envelope = envelope_of(type(message)).model_construct(
        id=id or f"c{len(log.entries) + 1}",
        type=type(message).__name__,
        source=service or "me",
        causeposition=cause,
        data=message,
    )
    return log.append(subject_of(message, service), envelope.encode(), envelope.id)


def read(replica: Replica[State], log: Log) -> None:
    """Lets a replica read to the end of the log."""
    for entry in log.entries[replica.read_to :]:
        if SERVICE.wants(entry.subject):
            replica.read(entry)
        else:
            replica.read_to = entry.position


def proposal_of(replica: Replica[State], *, even_if_quiet: bool = False) -> Proposal[State]:
    """What a replica proposes, where it proposes anything."""
    proposal = replica.propose(even_if_quiet=even_if_quiet)
    assert proposal is not None
    return proposal


def output(replica: Replica[State], log: Log) -> bool:
    """Lets a replica read on and commit its outputs; whether they were stored."""
    read(replica, log)
    proposal = replica.propose()
    if proposal is None or not proposal.worth_storing:
        return False
    position = log.commit(proposal)
    if position is None:
        replica.conflicted()
        return False
    replica.accepted(proposal, position)
    return True


# What is proposed.


def test_a_replica_without_open_questions_proposes_nothing() -> None:
    assert Replica(SERVICE).propose() is None


def test_answers_lie_in_envelopes_that_name_their_question() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    ask(log, limit=2, id="c1")

    read(replica, log)
    proposal = proposal_of(replica)

    (processed,) = proposal.processed
    assert processed.envelopes == tuple(
        envelope_of(QuotaSet).model_construct(
            id=f"1.quota.{index}",
            type="QuotaSet",
            source="quota",
            subject="acme/_/_",
            time=log.entries[0].time,
            correlationid="c1",
            causationid="c1",
            causeposition=1,
            data=said(index, limit=2),
        )
        for index in range(2)
    )
    assert [(one.subject, one.id) for one in proposal.messages] == [
        ("np.evt.quota.acme._._.QuotaSet", "1.quota.0"),
        ("np.evt.quota.acme._._.QuotaSet", "1.quota.1"),
    ]
    assert (proposal.subject, proposal.record()) == ("np.commit.quota", b'{"position": 1}')
    assert (proposal.position, proposal.expected_sequence, proposal.worth_storing) == (1, 0, True)


def test_a_trace_and_the_command_that_began_it_go_on_through_answers() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    content = {
        "specversion": "1.0",
        "id": "c9",
        "traceparent": "00-a-b-01",
        "data": {"zone": "z", "instanceType": "t", "limit": 1},
    }
    log.append("np.cmd.acme._._.SetQuota", json.dumps(content).encode(), "")

    read(replica, log)
    (processed,) = proposal_of(replica).processed

    (envelope,) = processed.envelopes
    assert (envelope.traceparent, envelope.correlationid) == ("00-a-b-01", "c9")


def test_questions_are_answered_in_the_order_of_the_log_each_seeing_those_before() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    for limit in (2, 1, 3):
        ask(log, limit)

    read(replica, log)
    proposal = proposal_of(replica)

    assert proposal.state == State(said=(0, 1, 2, 3, 4, 5))
    assert proposal.position == 3
    assert (replica.open, replica.committed) == (0, 0)


# What becomes of a proposal.


def test_an_accepted_proposal_is_what_the_replica_stands_on() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    ask(log, 2)

    assert output(replica, log)

    assert (replica.safe, replica.state) == (State(said=(0, 1)),) * 2
    assert (replica.committed, replica.expected_sequence, replica.open) == (1, 4, 0)


def test_a_replica_passes_over_the_echo_of_what_it_said_itself() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    ask(log, 2)
    output(replica, log)

    read(replica, log)

    assert replica.read_to == len(log.entries)
    assert replica.state == State(said=(0, 1))
    assert replica.propose() is None


def test_a_refused_proposal_is_undone_and_nothing_is_proposed_until_the_rival_is_read() -> None:
    log, first, second = Log(NOON), Replica(SERVICE), Replica(SERVICE)
    ask(log, 2)
    for replica in (first, second):
        read(replica, log)
    late = proposal_of(second)
    output(first, log)

    assert log.commit(late) is None
    second.conflicted()

    assert (second.state, second.is_behind) == (State(), True)
    assert second.propose() is None
    read(second, log)
    assert (second.state, second.is_behind) == (State(said=(0, 1)), False)
    assert (second.state, second.committed, second.expected_sequence) == (State(said=(0, 1)), 1, 4)


def test_a_proposal_in_doubt_that_was_stored_is_found_in_the_log() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    ask(log, 2)
    read(replica, log)
    log.commit(proposal_of(replica))

    replica.in_doubt()

    assert replica.state == State()
    read(replica, log)
    assert (replica.state, replica.committed) == (State(said=(0, 1)), 1)
    assert replica.propose() is None


def test_a_proposal_in_doubt_that_was_lost_is_made_again_with_the_same_ids() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    ask(log, 2)
    read(replica, log)
    lost = proposal_of(replica)

    replica.in_doubt()
    again = proposal_of(replica)

    assert again.messages == lost.messages
    assert (again.position, again.expected_sequence, again.state) == (
        lost.position,
        lost.expected_sequence,
        lost.state,
    )


def test_a_commit_is_refused_whatever_the_rival_said() -> None:
    log, first, second = Log(NOON), Replica(SERVICE), Replica(SERVICE)
    note(log)
    for replica in (first, second):
        read(replica, log)
    late = proposal_of(second, even_if_quiet=True)
    quiet = proposal_of(first, even_if_quiet=True)

    assert log.commit(quiet) is not None
    assert log.commit(late) is None


# Recorded outputs win.


def test_what_the_log_holds_is_folded_and_not_what_would_be_said_today() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    ask(log, 1)
    put(log, said(41), "quota", cause=1)
    put(log, said(42), "quota", cause=1)
    log.append("np.commit.quota", b'{"position": 1}', "")

    read(replica, log)

    assert replica.state == State(said=(41, 42))
    assert (replica.committed, replica.expected_sequence) == (1, 4)
    assert replica.propose() is None


def test_answers_are_folded_right_after_their_question_however_late_they_lie() -> None:
    log, live, again = Log(NOON), Replica(SERVICE), Replica(SERVICE)
    ask(log, 1)
    read(live, log)
    proposal = proposal_of(live)
    note(log)
    ask(log, 2)
    position = log.commit(proposal)
    assert position is not None
    live.accepted(proposal, position)
    output(live, log)

    read(again, log)

    assert again.safe == live.safe == State(machines=1, said=(0, 1, 2))


def test_a_settled_question_without_recorded_answers_is_folded_and_not_answered() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    note(log)
    ask(log, 1)
    log.append("np.commit.quota", b'{"position": 2}', "")

    read(replica, log)

    assert replica.state == State(machines=1)
    assert replica.propose() is None


def test_what_comes_after_the_last_commit_is_open() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    ask(log, 1)
    log.append("np.commit.quota", b'{"position": 1}', "")
    ask(log, 2)

    read(replica, log)

    assert [(message.subject, message.id) for message in proposal_of(replica).messages] == [
        ("np.evt.quota.acme._._.QuotaSet", "3.quota.0"),
        ("np.evt.quota.acme._._.QuotaSet", "3.quota.1"),
    ]


def test_a_second_replica_follows_what_the_first_says() -> None:
    log, first, second = Log(NOON), Replica(SERVICE), Replica(SERVICE)
    for limit in (1, 0, 3):
        ask(log, limit)
        note(log)
        output(first, log)
        read(second, log)

    assert second.safe == first.safe
    assert (second.committed, second.expected_sequence) == (
        first.committed,
        first.expected_sequence,
    )
    assert second.open == first.open


def test_a_follower_tells_when_something_was_settled() -> None:
    log, first, second = Log(NOON), Replica(SERVICE), Replica(SERVICE)
    ask(log, 1)
    output(first, log)

    told = [second.read(entry) for entry in log.entries]

    assert told == [False, False, True]


def test_a_replica_restored_from_a_snapshot_reads_on_from_there() -> None:
    log, live = Log(NOON), Replica(SERVICE)
    ask(log, 2)
    output(live, log)
    kept = (live.safe, live.committed, live.expected_sequence)
    note(log)
    ask(log, 1)
    output(live, log)

    restored = Replica(SERVICE, *kept)
    for entry in log.entries:
        restored.read(entry)

    assert (restored.safe, restored.committed, restored.expected_sequence) == (
        live.safe,
        live.committed,
        live.expected_sequence,
    )


@pytest.mark.parametrize(
    ("subject", "content"),
    [
        pytest.param("np.evt.quota.acme._._.QuotaSet", b"garbage", id="no JSON"),
        pytest.param("np.evt.quota.acme._._.QuotaSet", b'{"id":"x"}', id="no event"),
        pytest.param("np.evt.quota.acme._._.Unheard", b"{}", id="an unknown name"),
        pytest.param("np.evt.quota.short", b"{}", id="no message subject"),
    ],
)
def test_garbage_on_the_subject_of_a_service_is_passed_over(subject: str, content: bytes) -> None:
    log, live, again = Log(NOON), Replica(SERVICE), Replica(SERVICE)
    log.append(subject, content, "")
    ask(log, 1)
    log.append(subject, content, "")
    output(live, log)
    log.append(subject, content, "")
    ask(log, 1)
    output(live, log)

    read(again, log)

    assert again.safe == live.safe == State(said=(0, 1))


def test_an_answer_by_a_stranger_that_names_no_open_question_is_passed_over() -> None:
    log, live, again = Log(NOON), Replica(SERVICE), Replica(SERVICE)
    ask(log, 1)
    put(log, said(99), "quota", id="stranger", cause=None)
    put(log, said(98), "quota", id="stranger.2", cause=77)
    output(live, log)

    read(again, log)

    assert again.safe == live.safe == State(said=(0,))


# Questions that have no output.


def test_quiet_questions_wait_behind_the_cursor_until_something_is_said() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    note(log)
    note(log)

    assert not output(replica, log)

    assert (replica.quiet, replica.open, replica.committed) == (2, 0, 0)
    assert (replica.state, replica.safe) == (State(machines=2), State())
    ask(log, 1)
    assert output(replica, log)
    assert (replica.quiet, replica.committed) == (0, 3)
    assert replica.safe == State(machines=2, said=(0,))


def test_a_quiet_commit_moves_the_cursor_and_says_nothing() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    note(log)
    read(replica, log)
    assert not proposal_of(replica).worth_storing

    proposal = proposal_of(replica, even_if_quiet=True)

    assert (proposal.worth_storing, proposal.messages, proposal.position) == (True, [], 1)
    position = log.commit(proposal)
    assert position == 2
    replica.accepted(proposal, position)
    assert (replica.committed, replica.quiet) == (1, 0)


def test_a_quiet_cursor_falls_behind_only_so_far() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    for _ in range(QUIET_MAX):
        note(log)
    read(replica, log)

    worth: list[bool] = []
    while not worth or not worth[-1]:
        worth.append(proposal_of(replica).worth_storing)

    assert worth == [False, False, True]
    assert replica.quiet == QUIET_MAX


def test_a_message_that_the_service_does_not_know_is_settled_without_an_answer() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    entry = log.append("np.evt.fleet.fleet.z.m.Unheard", b"?", "")

    replica.read(log.entries[entry - 1])
    proposal = proposal_of(replica, even_if_quiet=True)

    assert (proposal.messages, proposal.position, proposal.state) == ([], 1, State())


# A commit holds a bounded number of things.


def test_a_proposal_settles_at_most_so_many_questions() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    for _ in range(INPUTS_MAX + 5):
        ask(log, 1)
    read(replica, log)

    first = proposal_of(replica)

    assert INPUTS_MAX == 400
    assert (len(first.processed), len(first.messages), replica.open) == (400, 400, 5)
    position = log.commit(first)
    assert position is not None
    replica.accepted(first, position)
    assert len(proposal_of(replica).processed) == 5


def test_a_proposal_says_at_most_so_many_answers() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    for limit in (400, 400, 101, 100, 1):
        ask(log, limit)
    read(replica, log)

    sizes: list[int] = []
    while replica.open:
        proposal = proposal_of(replica)
        sizes.append(len(proposal.messages))
        position = log.commit(proposal)
        assert position is not None
        replica.accepted(proposal, position)

    assert OUTPUTS_MAX == 900
    assert sizes == [800, 202]
    assert replica.safe.said == tuple(range(1_002))


def test_the_largest_decision_that_is_allowed_fills_a_proposal_of_its_own() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    ask(log, 1)
    ask(log, OUTPUTS_MAX)
    read(replica, log)

    first = proposal_of(replica)
    position = log.commit(first)
    assert position is not None
    replica.accepted(first, position)
    second = proposal_of(replica)

    assert (len(first.messages), len(second.messages)) == (1, OUTPUTS_MAX)


def test_a_decision_that_says_too_much_is_a_mistake() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    ask(log, OUTPUTS_MAX + 1)
    read(replica, log)

    (processed,) = proposal_of(replica).processed

    assert processed.failure is not None
    assert processed.failure.cause == "AssertionError: quota says 901 things at once"
    assert processed.failure.is_bug


# What cannot be processed.


def outcomes(proposal: Proposal[State]) -> list[Message]:
    """Everything a proposal says, dead letters left out."""
    return [envelope.data for one in proposal.processed for envelope in one.envelopes]


def letters(proposal: Proposal[State]) -> list[object]:
    """The dead letters of a proposal."""
    return [
        json.loads(message.content)
        for message in proposal.messages
        if message.subject == "np.dead.quota"
    ]


def test_an_unreadable_command_is_refused_and_parked() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    content = b'{"zone": "z", "instanceType": "t", "limit": "many"}'
    log.append("np.cmd.acme._._.SetQuota", content, "")
    ask(log, 1)
    read(replica, log)

    proposal = proposal_of(replica)

    assert outcomes(proposal) == [
        CommandRefused(
            org="acme",
            cluster="_",
            pool="_",
            command="SetQuota",
            reason="Invalid",
            field="limit",
            message="input should be a valid integer",
        ),
        said(0),
    ]
    assert letters(proposal) == [
        {
            "position": 1,
            "subject": "np.cmd.acme._._.SetQuota",
            "time": log.entries[0].time.isoformat(),
            "field": "limit",
            "cause": "input should be a valid integer",
            "content": content.decode(),
        }
    ]
    assert [message.id for message in proposal.messages] == [
        "1.quota.0",
        "1.quota.dead",
        "2.quota.0",
    ]


def test_an_unreadable_event_is_parked_and_never_blocks_the_rest() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    log.append("np.evt.fleet.fleet.z.m.MachineAdded", b"\xff" * 10_000, "")
    ask(log, 1)
    read(replica, log)

    proposal = proposal_of(replica)

    assert outcomes(proposal) == [said(0)]
    (letter,) = letters(proposal)
    assert isinstance(letter, dict)
    assert letter["content"] == "\N{REPLACEMENT CHARACTER}" * LETTER_MAX
    assert letter["cause"].startswith("the content is not JSON: ")
    assert proposal.state == State(said=(0,))


@pytest.mark.parametrize(
    ("limit", "cause"),
    [
        pytest.param(MISTAKE, "RuntimeError: an invariant is broken", id="while deciding"),
        pytest.param(LATE_MISTAKE, "RuntimeError: cannot be folded", id="while folding"),
    ],
)
def test_a_broken_invariant_is_told_to_who_asked_and_parked(limit: int, cause: str) -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    ask(log, 1)
    ask(log, limit)
    ask(log, 1)
    read(replica, log)

    proposal = proposal_of(replica)

    assert outcomes(proposal) == [
        said(0),
        CommandRefused(
            org="acme",
            cluster="_",
            pool="_",
            command="SetQuota",
            reason="InternalError",
            field="",
            message=cause,
        ),
        said(1),
    ]
    assert len(letters(proposal)) == 1
    assert proposal.state == State(said=(0, 1))


@pytest.mark.parametrize("limit", [MISTAKE, LATE_MISTAKE])
def test_a_broken_invariant_leaves_the_same_state_at_replay(limit: int) -> None:
    log, live, again = Log(NOON), Replica(SERVICE), Replica(SERVICE)
    for one in (1, limit, 1):
        ask(log, one)
    output(live, log)

    read(again, log)

    assert again.safe == live.safe


# Time is a message.


def test_a_replica_tells_when_it_wants_to_be_woken() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    assert replica.due() is None

    note(log)
    output(replica, log)

    assert replica.due() == IMMEDIATELY


def test_two_replicas_that_ring_for_the_same_moment_make_one_message() -> None:
    due = NOON + timedelta(minutes=7)
    log = Log(NOON)

    rings = [wake("quota", due, 41), wake("quota", due, 41), wake("quota", due, 42)]
    stored = [log.append(subject_of(ring.data, CLOCK), ring.encode(), ring.id) for ring in rings]

    assert stored == [1, 1, 2]
    assert rings[0].data == Wake(service="quota", due=due)
    assert log.entries[0].subject == "np.evt.clock.quota._._.Wake"


# Whatever happens, each input is processed once, and everybody agrees.


@dataclass(frozen=True)
class Act:
    """One thing that happens: who does what, and what becomes of it."""

    who: int
    what: str


acts = st.lists(
    st.builds(
        Act,
        st.integers(0, 2),
        st.sampled_from(
            ("ask", "ask twice", "note", "break", "read", "commit", "lose", "doubt", "restart")
        ),
    ),
    max_size=60,
)


def happens(act: Act, log: Log, replicas: list[Replica[State]]) -> None:
    """Lets one thing happen."""
    replica = replicas[act.who]
    match act.what:
        case "ask" | "ask twice":
            ask(log, 1 if act.what == "ask" else 2)
        case "note":
            note(log)
        case "break":
            ask(log, MISTAKE)
        case "read":
            read(replica, log)
        case "restart":
            replicas[act.who] = Replica(SERVICE)
        case _:
            proposal = replica.propose(even_if_quiet=act.what == "doubt")
            if proposal is None or not proposal.worth_storing:
                return
            position = log.commit(proposal) if act.what != "lose" else None
            if act.what != "commit":
                replica.in_doubt()
            elif position is None:
                replica.conflicted()
            else:
                replica.accepted(proposal, position)


@given(acts)
def test_replicas_that_lose_doubt_and_restart_answer_each_question_once(story: list[Act]) -> None:
    log, replicas = Log(NOON), [Replica(SERVICE) for _ in range(3)]

    for act in story:
        happens(act, log, replicas)
    for _ in range(2):
        for replica in replicas:
            output(replica, log)
    for replica in replicas:
        read(replica, log)

    inputs = [entry for entry in log.entries if entry.subject.startswith("np.cmd.")]
    wanted = [json.loads(entry.content)["data"]["limit"] for entry in inputs]
    outputs = sum(limit for limit in wanted if limit != MISTAKE)
    told = [entry for entry in log.entries if entry.subject.endswith(".QuotaSet")]
    numbers = [json.loads(entry.content)["data"]["granted"] for entry in told]
    assert numbers == list(range(outputs))
    assert len({replica.safe for replica in replicas}) == 1
    assert replicas[0].safe.said == tuple(numbers)


def test_commands_alone_are_questions_that_somebody_waits_for() -> None:
    log, replica = Log(NOON), Replica(SERVICE)
    log.append("np.evt.fleet.fleet.z.m.MachineAdded", b"{", "")
    log.append("np.cmd.acme._._.SetQuota", b"{", "")
    read(replica, log)

    told = proposal_of(replica).processed

    assert [one.failure is not None and one.failure.is_command for one in told] == [False, True]
    assert issubclass(SetQuota, Command)
