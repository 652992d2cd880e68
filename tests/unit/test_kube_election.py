"""Who holds the Lease, by clocks that the test drives: each replica has one of its own."""

from dataclasses import dataclass, replace

from nodepool.kube.lease import DEADLINE_S, DURATION_S, RETRY_S, Election, Seen, seen_lease

LEASE = Seen("a", DURATION_S, "1", 0, "2026-01-01T00:00:00.000000Z")


@dataclass
class Replica:
    """A replica whose clock is ahead of the test's by so many seconds."""

    name: str
    ahead_s: float = 0.0

    def __post_init__(self) -> None:
        self.election = Election(self.name)

    def act(self, lease: Seen | None, now: float) -> Seen | None:
        """One turn of it: the Lease as it is afterwards."""
        now += self.ahead_s
        step = self.election.step(lease, now)
        if step == "wait":
            return lease
        version = str(int(lease.version) + 1) if lease else "1"
        written = Seen(self.name, DURATION_S, version, 0, "")
        self.election.note_write(written, now, now)
        return written

    def holds(self, now: float) -> bool:
        """Whether it may act now."""
        return self.election.holds(now + self.ahead_s)


def test_the_first_replica_creates_the_lease_and_holds_it() -> None:
    first, second = Replica("a"), Replica("b")

    lease = second.act(first.act(None, 0.0), 0.5)

    assert lease is not None
    assert (lease.holder, first.holds(1.0), second.holds(1.0)) == ("a", True, False)


def test_a_lease_that_is_renewed_is_never_taken() -> None:
    first, second = Replica("a"), Replica("b", ahead_s=1_000.0)
    lease = None

    for number in range(100):
        lease = second.act(first.act(lease, number * RETRY_S), number * RETRY_S)

    assert lease is not None
    assert lease.holder == "a"


def test_the_lease_of_a_replica_that_is_gone_is_taken_after_its_duration() -> None:
    first, second = Replica("a"), Replica("b")
    lease = second.act(first.act(None, 0.0), 0.0)

    early = second.act(lease, DURATION_S - 0.1)
    late = second.act(lease, DURATION_S)

    assert early is not None
    assert late is not None
    assert (early.holder, late.holder) == ("a", "b")


def test_a_holder_has_stopped_before_another_one_may_begin_whatever_their_clocks_say() -> None:
    for ahead_s in (-1e6, -3.0, 0.0, 3.0, 1e6):
        first, second = Replica("a"), Replica("b", ahead_s)
        lease = first.act(None, 0.0)
        # It sees the Lease at once, which is as early as it can be.
        both = []
        for tenth in range(10 * (DURATION_S + 5)):
            now = tenth / 10
            lease = second.act(lease, now)
            both.append(first.holds(now) and second.holds(now))

        assert second.holds(DURATION_S + 1.0)
        assert not any(both)
        assert not first.holds(DEADLINE_S)


def test_a_released_lease_is_taken_at_once() -> None:
    second = Replica("b")
    second.act(LEASE, 0.0)

    lease = second.act(replace(LEASE, holder="", version="2", duration_s=1), 0.1)

    assert lease is not None
    assert lease.holder == "b"


def test_a_renewal_counts_from_when_it_began_and_not_from_its_reply() -> None:
    election = Election("a")

    election.note_write(LEASE, began=0.0, now=4.0)

    assert (election.holds(DEADLINE_S - 0.1), election.holds(DEADLINE_S)) == (True, False)


def test_one_that_has_lost_it_may_take_it_again_where_nobody_else_has() -> None:
    election = Election("a")
    election.note_write(LEASE, 0.0, 0.0)
    election.note_loss()

    assert (election.holds(0.0), election.step(LEASE, 1.0)) == (False, "renew")


def test_a_lease_that_others_have_written_nonsense_into_is_read_all_the_same() -> None:
    lease = {
        "metadata": {"resourceVersion": "7", "annotations": None},
        "spec": {"holderIdentity": None, "leaseDurationSeconds": "soon", "leaseTransitions": []},
    }

    assert seen_lease(lease, "note") == Seen("", 0, "7", 0, "", "")
    assert seen_lease({"spec": 3}, "note") == Seen("", 0, "", 0, "", "")
