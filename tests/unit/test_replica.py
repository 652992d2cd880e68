import json
from datetime import UTC, datetime, timedelta

import pytest

from nodepool.contract.events import CommandRefused, Wake
from nodepool.contract.messages import Message, envelope_of, pool_fields
from nodepool.contract.outcomes import build_acceptance
from nodepool.engine.bounds import OUTPUTS_MAX
from nodepool.engine.folded import Folded
from nodepool.engine.proposal import LETTER_MAX, Proposal
from nodepool.engine.replica import BATCH_MAX, INPUTS_MAX, QUIET_MAX
from nodepool.engine.world import Log
from nodepool.state.work import IMMEDIATELY
from support.sample_service import (
    JOB,
    NAME,
    SERVICE,
    Fault,
    Hears,
    PaperJammed,
    PrinterReplica,
    State,
    commit,
    enqueue,
    fire,
    page,
    pages,
    paper,
    print_now,
    read,
    store,
)

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PrinterProposal = Proposal[State, Hears]


def given_log(*messages: Message) -> tuple[Log, PrinterReplica]:
    """A log that holds these messages, and a replica that has read them."""
    log, replica = Log(NOON), PrinterReplica(SERVICE)
    for message in messages:
        store(log, message)
    read(replica, log)
    return log, replica


def proposal_of(replica: PrinterReplica, *, even_if_quiet: bool = False) -> PrinterProposal:
    """What a replica proposes, where it proposes anything."""
    proposal = replica.propose(even_if_quiet=even_if_quiet)
    assert proposal is not None
    return proposal


def accept(replica: PrinterReplica, log: Log, proposal: PrinterProposal) -> None:
    """Stores a proposal."""
    position = log.commit(proposal)
    assert position is not None
    replica.confirm_proposal(proposal, position)


def outputs(proposal: PrinterProposal) -> list[Message]:
    """Everything a proposal says, dead letters left out."""
    return [envelope.data for item in proposal.processed for envelope in item.envelopes]


def dead_letters(proposal: PrinterProposal) -> list[dict[str, object]]:
    """The dead letters of a proposal."""
    return [
        json.loads(message.content)
        for message in proposal.messages
        if message.subject == "np.dead.printer"
    ]


# What is proposed.


def test_a_replica_without_open_inputs_proposes_nothing() -> None:
    assert PrinterReplica(SERVICE).propose() is None


def test_outputs_lie_in_envelopes_that_name_their_input() -> None:
    log, replica = Log(NOON), PrinterReplica(SERVICE)
    store(log, print_now(1), "c1")
    read(replica, log)

    proposal = proposal_of(replica)

    (processed,) = proposal.processed
    assert processed.envelopes == tuple(
        envelope_of(type(output)).model_construct(
            id=f"1.printer.{index}",
            type=type(output).__name__,
            source="printer",
            subject="acme/prod/train",
            time=log.entries[0].time,
            correlationid="c1",
            causationid="c1",
            causeposition=1,
            data=output,
        )
        for index, output in enumerate((build_acceptance(print_now(1), "done"), page(0)))
    )
    assert [(message.subject, message.id) for message in proposal.messages] == [
        ("np.evt.printer.acme.prod.train.CommandAccepted", "1.printer.0"),
        ("np.evt.printer.acme.prod.train.PagePrinted", "1.printer.1"),
    ]
    assert proposal.subject == "np.commit.printer"
    assert proposal.record() == b'{"position": 1, "outputs": 2, "follows": 0, "log": ""}'
    assert (proposal.position, proposal.expected_sequence, proposal.worth_storing) == (1, 0, True)


def test_a_trace_and_the_command_that_began_it_go_on_through_outputs() -> None:
    log, replica = Log(NOON), PrinterReplica(SERVICE)
    content = {
        "specversion": "1.0",
        "id": "c9",
        "traceparent": TRACEPARENT,
        "data": {"pages": 0},
    }
    log.append("np.cmd.acme.prod.train.PrintNow", json.dumps(content).encode())

    read(replica, log)
    (processed,) = proposal_of(replica).processed

    (envelope,) = processed.envelopes
    assert (envelope.traceparent, envelope.correlationid) == (TRACEPARENT, "c9")


def test_the_outputs_of_a_wake_have_the_correlation_of_the_command_that_began_it() -> None:
    log, replica = Log(NOON), PrinterReplica(SERVICE)
    store(log, enqueue(1), "c1")
    commit(replica, log)
    store(log, Wake(service=NAME, due=NOON), "a wake")

    read(replica, log)
    (processed,) = proposal_of(replica).processed

    (envelope,) = processed.envelopes
    assert envelope.data == page(0)
    assert (envelope.correlationid, envelope.causationid) == ("c1", "a wake")


def test_inputs_are_processed_in_the_order_of_the_log_each_seeing_those_before() -> None:
    _, replica = given_log(print_now(2), print_now(1), print_now(3))

    proposal = proposal_of(replica)

    printed = [output for output in outputs(proposal) if output in pages(range(6))]
    assert printed == list(pages(range(6)))
    assert proposal.folded.state.pages == 6
    assert proposal.position == 3
    assert (replica.open, replica.committed) == (0, 0)


# What becomes of a proposal.


def test_an_accepted_proposal_is_what_the_replica_stands_on() -> None:
    log, replica = given_log(print_now(2))

    assert commit(replica, log)

    assert replica.safe.state == replica.state
    assert replica.state.pages == 2
    assert (replica.committed, replica.expected_sequence, replica.open) == (1, 5, 0)


def test_a_replica_passes_over_the_echo_of_its_own_outputs() -> None:
    log, replica = given_log(print_now(2))
    commit(replica, log)
    before = replica.safe

    read(replica, log)

    assert replica.read_to == len(log.entries)
    assert replica.safe is before
    assert replica.propose() is None


def test_a_conflict_undoes_a_proposal_and_nothing_is_proposed_until_the_other_commit_is_read() -> (
    None
):
    log, first = given_log(print_now(2))
    second = PrinterReplica(SERVICE)
    read(second, log)
    late = proposal_of(second)
    commit(first, log)

    assert log.commit(late) is None
    second.note_conflict()

    assert (second.state, second.is_behind) == (State(), True)
    assert second.propose() is None
    read(second, log)
    assert (second.safe, second.is_behind) == (first.safe, False)
    assert (second.committed, second.expected_sequence) == (1, 5)


def test_a_proposal_in_doubt_that_was_stored_is_found_in_the_log() -> None:
    log, replica = given_log(print_now(2))
    log.commit(proposal_of(replica))

    replica.undo_proposal()

    assert replica.state == State()
    read(replica, log)
    assert (replica.state.pages, replica.committed) == (2, 1)
    assert replica.propose() is None


def test_a_proposal_in_doubt_that_was_lost_is_made_again_with_the_same_ids() -> None:
    _, replica = given_log(print_now(2))
    lost = proposal_of(replica)

    replica.undo_proposal()
    again = proposal_of(replica)

    assert again.messages == lost.messages
    assert (again.position, again.expected_sequence, again.folded) == (
        lost.position,
        lost.expected_sequence,
        lost.folded,
    )


def test_of_two_commits_after_the_same_one_only_the_first_is_stored() -> None:
    log, first = given_log(paper())
    second = PrinterReplica(SERVICE)
    read(second, log)
    late = proposal_of(second, even_if_quiet=True)
    quiet = proposal_of(first, even_if_quiet=True)

    assert log.commit(quiet) is not None
    assert log.commit(late) is None


# Inputs that have no output.


def test_inputs_without_outputs_wait_uncommitted_until_there_is_an_output() -> None:
    log, replica = given_log(paper(), paper())

    assert not commit(replica, log)

    assert (replica.quiet, replica.open, replica.committed) == (2, 0, 0)
    assert (replica.state, replica.safe) == (State(sheets=2), Folded(State()))
    store(log, print_now(0))
    assert commit(replica, log)
    assert (replica.quiet, replica.committed) == (0, 3)
    assert replica.safe.state == State(sheets=2)


def test_a_quiet_commit_moves_the_committed_position_and_says_nothing() -> None:
    log, replica = given_log(paper())
    assert not proposal_of(replica).worth_storing

    proposal = proposal_of(replica, even_if_quiet=True)

    assert (proposal.worth_storing, proposal.messages, proposal.position) == (True, [], 1)
    accept(replica, log, proposal)
    assert (replica.committed, replica.expected_sequence, replica.quiet) == (1, 2, 0)


def test_the_committed_position_falls_behind_only_so_far() -> None:
    _, replica = given_log(*(paper() for _ in range(QUIET_MAX)))

    worth: list[bool] = []
    while not worth or not worth[-1]:
        worth.append(proposal_of(replica).worth_storing)

    assert worth == [False, False, True]
    assert replica.quiet == QUIET_MAX


def test_a_message_that_the_service_does_not_hear_is_no_input() -> None:
    log, replica = given_log()
    position = log.append("np.evt.store.acme.prod.train.PaperEaten", b"?")

    replica.read(log.entries[position - 1])

    assert (replica.read_to, replica.open) == (1, 0)
    assert replica.propose(even_if_quiet=True) is None


# A commit has a bound.


def test_a_proposal_holds_a_bounded_number_of_inputs() -> None:
    log, replica = given_log(*(print_now(0) for _ in range(INPUTS_MAX + 5)))

    first = proposal_of(replica)

    assert INPUTS_MAX == 400
    assert (len(first.processed), len(first.messages), replica.open) == (400, 400, 5)
    accept(replica, log, first)
    assert len(proposal_of(replica).processed) == 5


def test_a_proposal_holds_a_bounded_number_of_outputs() -> None:
    log, replica = given_log(*(print_now(count - 1) for count in (400, 400, 101, 100, 1)))

    sizes: list[int] = []
    while replica.open:
        proposal = proposal_of(replica)
        sizes.append(len(proposal.messages))
        accept(replica, log, proposal)

    assert OUTPUTS_MAX == 900
    assert sizes == [800, 202]
    assert replica.safe.state.pages == 1_002 - 5


def test_the_largest_decision_that_is_allowed_fills_a_proposal_of_its_own() -> None:
    log, replica = given_log(print_now(0), print_now(OUTPUTS_MAX - 1))

    first = proposal_of(replica)
    accept(replica, log, first)
    second = proposal_of(replica)

    assert (len(first.messages), len(second.messages)) == (1, OUTPUTS_MAX)


@pytest.mark.parametrize("first", range(895, 900))
@pytest.mark.parametrize("fault", [Fault.DECIDING, Fault.REPORTING, Fault.LONG_REPORT])
def test_a_proposal_fits_an_atomic_batch_with_all_its_dead_letters_and_its_record(
    first: int, fault: Fault
) -> None:
    log, replica = given_log(print_now(first), *(paper(fault=fault) for _ in range(600)))

    sizes: list[int] = []
    while replica.open:
        proposal = proposal_of(replica)
        sizes.append(len(proposal.messages) + 1)
        accept(replica, log, proposal)

    assert BATCH_MAX == 1_000
    assert all(size <= BATCH_MAX for size in sizes)
    assert sum(entry.subject == "np.dead.printer" for entry in log.entries) == 600


# What cannot be processed.


def test_an_unreadable_command_is_refused_and_has_a_dead_letter() -> None:
    log, replica = Log(NOON), PrinterReplica(SERVICE)
    content = b'{"pages": "many"}'
    log.append("np.cmd.acme.prod.train.PrintNow", content)
    store(log, print_now(0))
    read(replica, log)

    proposal = proposal_of(replica)

    assert outputs(proposal) == [
        CommandRefused(
            **pool_fields(JOB),
            command="PrintNow",
            reason="Invalid",
            field="pages",
            message="input should be a valid integer",
        ),
        build_acceptance(print_now(0), "done"),
    ]
    assert dead_letters(proposal) == [
        {
            "position": 1,
            "subject": "np.cmd.acme.prod.train.PrintNow",
            "time": log.entries[0].time.isoformat(),
            "field": "pages",
            "cause": "input should be a valid integer",
            "content": content.decode(),
        }
    ]
    assert [message.id for message in proposal.messages] == [
        "1.printer.0",
        "1.printer.dead",
        "2.printer.0",
    ]


def test_an_unreadable_event_has_a_dead_letter_and_never_blocks_the_rest() -> None:
    log, replica = Log(NOON), PrinterReplica(SERVICE)
    log.append("np.evt.store.acme.prod.train.PaperDelivered", b"\xff" * 10_000)
    store(log, print_now(0))
    read(replica, log)

    proposal = proposal_of(replica)

    (report, outcome) = outputs(proposal)
    assert isinstance(report, PaperJammed)
    assert outcome == build_acceptance(print_now(0), "done")
    (letter,) = dead_letters(proposal)
    assert letter["content"] == "\N{REPLACEMENT CHARACTER}" * LETTER_MAX
    assert str(letter["cause"]).startswith("the content is not JSON: ")


def test_a_dead_letter_is_short_however_much_of_its_input_the_failure_quotes() -> None:
    log, replica = Log(NOON), PrinterReplica(SERVICE)
    content = json.dumps({"pages": 1, "ÿ" * 100_000: 1}, ensure_ascii=False).encode()
    log.append("np.cmd.acme.prod.train.PrintNow", content)
    read(replica, log)

    proposal = proposal_of(replica)

    (letter,) = dead_letters(proposal)
    assert letter["field"] == "ÿ" * LETTER_MAX
    assert all(len(message.content) < 100_000 for message in proposal.messages)


@pytest.mark.parametrize("fault", [Fault.DECIDING, Fault.FOLDING_INPUT])
def test_a_command_on_which_the_service_breaks_is_refused_and_has_a_dead_letter(
    fault: Fault,
) -> None:
    _, replica = given_log(print_now(1), print_now(1, fault=fault), print_now(1))

    proposal = proposal_of(replica)

    done = build_acceptance(print_now(1), "done")
    assert outputs(proposal) == [
        done,
        page(0),
        CommandRefused(
            **pool_fields(JOB),
            command="PrintNow",
            reason="InternalError",
            field="",
            message=f"Broken: {fault}",
        ),
        done,
        page(1),
    ]
    assert len(dead_letters(proposal)) == 1
    assert proposal.folded.state.pages == 2


def test_the_dead_letter_of_a_key_names_the_key() -> None:
    log, replica = given_log(enqueue(1, fault=Fault.RECONCILING))
    commit(replica, log)
    store(log, Wake(service=NAME, due=NOON))
    read(replica, log)

    (letter,) = dead_letters(proposal_of(replica))

    assert letter["cause"] == "acme/prod/train: Broken: reconciling"
    assert letter["subject"] == "np.evt.clock.printer._._.Wake"


def test_the_failure_of_an_input_says_whether_a_sender_waits() -> None:
    log, replica = Log(NOON), PrinterReplica(SERVICE)
    log.append("np.evt.store.acme.prod.train.PaperDelivered", b"{")
    log.append("np.cmd.acme.prod.train.PrintNow", b"{")
    read(replica, log)

    failures = [item.failure for item in proposal_of(replica).processed]

    assert [failure and failure.is_command for failure in failures] == [False, True]


# Time is a message.


def test_a_replica_is_due_when_its_service_has_work() -> None:
    log, replica = given_log()
    assert replica.due() is None

    store(log, enqueue(1))
    commit(replica, log)

    assert replica.due() == IMMEDIATELY


def test_a_replica_is_due_at_the_moment_that_its_service_set() -> None:
    log, replica = given_log(enqueue(1, delay_s=60))

    commit(replica, log)

    assert replica.due() == log.entries[0].time + timedelta(seconds=60)


def test_two_replicas_that_wake_a_service_for_the_same_moment_make_one_message() -> None:
    log, first = given_log(enqueue(1))
    second = PrinterReplica(SERVICE)
    commit(first, log)
    read(second, log)

    stored = [fire(replica, log) for replica in (first, second)]
    read(second, log)

    assert stored == [5, None]
    assert log.entries[4].subject == "np.evt.clock.printer._._.Wake"
    assert (first.last_wake, second.last_wake) == (0, 5)
