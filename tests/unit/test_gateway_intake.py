"""How long the gateway shuts out an organisation that floods."""

from gateway.host.intake import SHUT_MAX_S, SHUT_S, SOON_S, Shut


def test_who_floods_again_and_again_is_shut_out_for_longer_each_time() -> None:
    # given an organisation that floods as soon as it is let in
    shut, now, times = None, 0.0, []
    for _ in range(7):
        shut = Shut.after(shut, now)
        times.append(shut.seconds)
        now = shut.until + 0.1

    # then each time is twice as long, up to a bound
    assert times[:3] == [SHUT_S, 2 * SHUT_S, 4 * SHUT_S]
    assert times[-1] == SHUT_MAX_S


def test_who_has_stopped_for_a_while_begins_anew() -> None:
    shut = Shut.after(Shut(until=100.0, seconds=SHUT_MAX_S), 100.0 + SOON_S)

    assert shut == Shut(100.0 + SOON_S + SHUT_S, SHUT_S)
