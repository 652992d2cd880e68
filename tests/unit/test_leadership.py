"""Leading and following: which replica processes an input at once, and which one waits."""

from nodepool.host.leadership import CLAIM_S, STALE_S, STANDBY_S, Leadership

NOW = 1_000.0
SOON = NOW + STANDBY_S / 2
LATER = NOW + STANDBY_S


def follower() -> Leadership:
    """A replica that has caught up, and has just read a commit of another one."""
    leadership = Leadership()
    leadership.note_foreign_commit(NOW, caught_up=True)
    return leadership


def leader() -> Leadership:
    """A replica that has caught up, and has committed."""
    leadership = Leadership()
    leadership.caught_up(NOW)
    leadership.note_own_commit()
    return leadership


def test_a_new_replica_may_commit_at_once_and_does_not_lead() -> None:
    # given a new replica
    leadership = Leadership()
    leadership.caught_up(NOW)

    # when an input arrives
    leadership.input_arrived(NOW)

    # then it may commit at once, and leads once it has
    assert leadership.may_commit(NOW)
    assert not leadership.leading
    assert not leadership.note_own_commit()
    assert leadership.leading


def test_of_two_idle_replicas_the_one_that_committed_last_leads() -> None:
    # given two replicas, the first of which has committed
    one, other = leader(), Leadership()
    other.caught_up(NOW)
    other.note_foreign_commit(NOW, caught_up=True)

    # when the second takes over, and the first reads that
    assert other.note_own_commit()
    one.note_foreign_commit(SOON, caught_up=True)

    # then the second leads, and the first does not
    assert (one.leading, other.leading) == (False, True)


def test_a_new_replica_claims_to_lead_once_it_has_heard_no_other_for_a_while() -> None:
    # given a replica that has caught up
    leadership = Leadership()
    leadership.caught_up(NOW)

    # when nothing happens
    # then it is to claim after a while, and not before
    assert not leadership.claim_is_due(NOW + CLAIM_S - 0.1)
    assert leadership.claim_is_due(NOW + CLAIM_S)


def test_neither_a_leader_nor_a_follower_claims_however_quiet_it_is() -> None:
    assert not leader().claim_is_due(NOW + 1_000)
    assert not follower().claim_is_due(NOW + 1_000)


def test_a_follower_claims_to_lead_once_its_leader_is_gone() -> None:
    # given a follower
    leadership = Leadership()
    leadership.note_foreign_commit(NOW, caught_up=True, leader="r1")

    # when its leader is not there any more
    leadership.note_leader_gone("r1")

    # then it claims, and has taken over once it leads
    assert not leadership.following
    assert leadership.claim_is_due(NOW + CLAIM_S)
    assert leadership.note_own_commit()


def test_a_follower_whose_leader_commits_while_it_is_asked_for_goes_on_following() -> None:
    # given a follower that has asked for its leader
    leadership = Leadership()
    leadership.note_foreign_commit(NOW, caught_up=True, leader="r1")

    # when another one commits before the reply comes
    leadership.note_foreign_commit(SOON, caught_up=True, leader="r2")
    leadership.note_leader_gone("r1")

    # then it follows that one
    assert leadership.following


def test_a_leader_stays_one_whatever_it_followed_before_is_gone() -> None:
    # given a replica that has taken over
    leadership = Leadership()
    leadership.note_foreign_commit(NOW, caught_up=True, leader="r1")
    leadership.note_own_commit()

    # when the one before it is gone
    leadership.note_leader_gone("r1")

    # then it leads
    assert leadership.leading


def test_a_replica_that_reads_a_commit_of_another_one_follows() -> None:
    # given a replica that leads
    leadership = leader()

    # when it reads a commit of another one
    leadership.note_foreign_commit(NOW, caught_up=True)

    # then it follows
    assert not leadership.leading
    assert not leadership.may_commit(NOW)


def test_a_commit_read_before_catching_up_is_history() -> None:
    # given a replica that reads the log from its start
    leadership = Leadership()

    # when it reads a commit of another one, or of its own earlier life
    leadership.note_foreign_commit(NOW, caught_up=False)

    # then it follows nobody
    assert not leadership.following


def test_a_follower_takes_over_what_the_leader_leaves_unprocessed() -> None:
    # given a follower
    leadership = follower()

    # when an input arrives
    leadership.input_arrived(SOON)

    # then it may commit only once the leader has had its time
    assert leadership.takeover_at == SOON + STANDBY_S
    assert not leadership.may_commit(LATER)
    assert leadership.may_commit(SOON + STANDBY_S)


def test_a_follower_waits_anew_after_each_commit_of_the_leader() -> None:
    # given a follower with an open input
    leadership = follower()
    leadership.input_arrived(NOW)

    # when the leader commits something else in the meantime
    leadership.note_foreign_commit(SOON, caught_up=True)

    # then the leader is at work, and the follower waits longer
    assert not leadership.may_commit(LATER)
    assert leadership.may_commit(SOON + STANDBY_S)


def test_a_conflict_makes_a_leader_follow() -> None:
    # given a replica that leads
    leadership = leader()

    # when its commit is refused because another replica came first
    leadership.note_conflict(NOW)

    # then it follows that one
    assert not leadership.leading
    assert not leadership.may_commit(SOON)
    assert leadership.may_commit(LATER)


def test_a_follower_leads_from_its_first_stored_commit_on() -> None:
    # given a follower
    leadership = follower()

    # when two of its commits are stored
    took_over = [leadership.note_own_commit(), leadership.note_own_commit()]

    # then it leads since the first of them
    assert took_over == [True, False]
    assert leadership.leading


def test_the_silence_of_a_leader_is_counted_from_its_last_commit() -> None:
    # given a follower
    leadership = follower()

    # when time passes
    # then the leader is silent for as long
    assert leadership.leader_silent_s(NOW + 12) == 12


def test_a_conflict_without_a_commit_to_read_is_stale_after_a_while() -> None:
    # given a replica whose commit was refused
    leadership = Leadership()
    leadership.note_conflict(NOW)

    # when the commit that came first is not read
    # then something is wrong after some seconds, and not before
    assert not leadership.is_stale(NOW + STALE_S)
    assert leadership.is_stale(NOW + STALE_S + 0.1)
