"""What the agent does not do again at once, by a clock that the test drives."""

from agent.host.keys import node_key
from agent.host.pacing import EVENT_S, REPORT_S, Pacing

N1 = node_key("n1")


def test_a_node_on_which_only_other_pods_run_is_reported_again_after_a_pause() -> None:
    pacing = Pacing()
    before = pacing.may_report(N1, 0.0)

    pacing.reported(N1, 0.0)

    moments = (REPORT_S / 2, REPORT_S)
    assert [before, *(pacing.may_report(N1, now) for now in moments)] == [True, False, True]
    assert pacing.may_report(node_key("n2"), 0.0)


def test_an_event_is_recorded_again_once_the_api_server_has_dropped_it() -> None:
    pacing = Pacing()
    before = pacing.is_recorded("train.1", 0.0)

    pacing.recorded("train.1", 0.0)

    moments = (EVENT_S / 2, EVENT_S)
    assert [before, *(pacing.is_recorded("train.1", now) for now in moments)] == [
        False,
        True,
        False,
    ]
    assert not pacing.is_recorded("train.2", 0.0)
