"""Which agents the gateway knows to be at work."""

from gateway.followers import FORGET_S, Followers

PROD, TEST = ("acme", "prod"), ("acme", "test")


def test_an_agent_is_at_work_while_it_asks() -> None:
    followers = Followers()
    followers.note(PROD, "1.0", now=0.0)
    followers.note(TEST, "1.0", now=FORGET_S)

    assert followers.at_work(FORGET_S) == {PROD: "1.0", TEST: "1.0"}
    assert followers.at_work(FORGET_S + 1) == {TEST: "1.0"}


def test_agents_that_are_gone_are_forgotten_though_nobody_asks_for_them() -> None:
    # given many clusters whose agents have asked once, and a last one
    followers = Followers()
    for number in range(1_000):
        followers.note(("acme", f"c{number}"), "1.0", now=float(number))

    # then it still knows only those that may be at work
    assert len(followers.at_work(0.0)) == FORGET_S + 1
