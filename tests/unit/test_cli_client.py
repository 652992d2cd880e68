import pytest

from nodepool.client import Client, Refused
from nodepool.client.events import KINDS, object_events, regards
from nodepool.client.outcomes import FILTERS_MAX, misnamed, outcome_filters, shown
from nodepool.contract.commands import BreakMachine, DeleteNodePool, RegisterCluster, SetQuota
from nodepool.contract.events import CWNodeRegistrationFailed, CWOverQuota, PreemptionPending
from nodepool.contract.log import Entry
from nodepool.contract.messages import Event, envelope_of
from nodepool.contract.subjects import subject_of
from nodepool.engine.world import START

POOL = {"org": "acme", "cluster": "prod", "pool": "training"}


def delete(pool: str, cluster: str = "prod") -> DeleteNodePool:
    return DeleteNodePool(org="acme", cluster=cluster, pool=pool)


def entry(event: Event) -> Entry:
    kind = type(event)
    envelope = envelope_of(kind).model_construct(id="1", type=kind.__name__, source="x", data=event)
    return Entry(1, START, subject_of(event, kind.speaker), envelope.encode(), {})


def test_the_outcome_of_one_command_is_read_on_its_own_subject() -> None:
    assert outcome_filters([delete("a.b")]) == [
        "np.evt.*.acme.prod.a~b.CommandAccepted",
        "np.evt.*.acme.prod.a~b.CommandRefused",
    ]
    assert outcome_filters([SetQuota(org="acme", zone="Z", instance_type="t", limit=1)]) == [
        "np.evt.*.acme._._.CommandAccepted",
        "np.evt.*.acme._._.CommandRefused",
    ]


def test_outcomes_of_many_commands_are_read_by_cluster() -> None:
    found = outcome_filters([delete("a"), delete("b"), delete("a", "test")])

    assert found == [
        "np.evt.*.acme.prod.*.CommandAccepted",
        "np.evt.*.acme.prod.*.CommandRefused",
        "np.evt.*.acme.test.*.CommandAccepted",
        "np.evt.*.acme.test.*.CommandRefused",
    ]


def test_outcomes_of_very_many_clusters_are_read_all_together() -> None:
    many = [delete("a", f"c{number}") for number in range(FILTERS_MAX + 1)]

    assert outcome_filters(many) == [
        "np.evt.*.*.*.*.CommandAccepted",
        "np.evt.*.*.*.*.CommandRefused",
    ]


@pytest.mark.parametrize("name", ["", "*", ">", "a.*.b", "a b", "a..b\n", ".a", "a~b"])
def test_a_name_that_would_reach_beyond_its_subject_is_refused(name: str) -> None:
    refusal = misnamed(delete(name))

    assert refusal is not None
    assert (refusal.field, refusal.reason) == ("metadata.name", "Invalid")


def test_names_the_control_plane_may_judge_are_let_through() -> None:
    assert misnamed(delete("Upper_Case.and.dots")) is None
    assert misnamed(RegisterCluster(org="acme", cluster="c", zone="Z")) is None
    assert misnamed(BreakMachine(zone="RNO2A", machine="g000001", fault="boot")) is None


def test_an_error_never_shows_the_password_of_an_address() -> None:
    assert shown("nats://user:secret@bus:4222") == "nats://bus:4222"
    assert shown("nats://bus:4222") == "nats://bus:4222"
    assert shown("token@bus") == "bus"


def test_a_client_for_a_wildcard_organisation_is_refused() -> None:
    with pytest.raises(Refused, match=r'^org: "\*" is no name; use letters'):
        Client(org="*")


def test_an_event_about_a_node_and_its_nodepool_is_shown_for_each() -> None:
    event = PreemptionPending(
        **POOL, node="g1", message="Reason: x", zone="Z", assignment=1, since=START
    )

    found = object_events(entry(event))

    assert [(seen.kind, seen.name, seen.reason, seen.severity) for seen in found] == [
        ("Node", "g1", "Preemption pending", "Warning"),
        ("NodePool", "training", "Preemption pending", "Warning"),
    ]
    assert {seen.component for seen in found} == {"preemption"}


def test_an_event_about_a_node_alone_is_not_one_of_its_nodepool() -> None:
    failed = CWNodeRegistrationFailed(
        **POOL, node="g1", message="no", uid="u", zone="Z", assignment=1
    )

    (seen,) = object_events(entry(failed))

    assert regards(seen, "", "g1")
    assert not regards(seen, "training", "")
    assert regards(seen, "", "")


def test_what_is_no_event_of_the_reference_is_not_shown() -> None:
    assert "CWOverQuota" in KINDS
    assert "NodePoolValidated" not in KINDS
    assert object_events(Entry(1, START, "np.cmd.a.b.c.DeleteNodePool", b"{}", {})) == []
    assert object_events(Entry(1, START, "np.evt.quota.a.b.c.CWOverQuota", b"no json", {})) == []
    assert len(object_events(entry(CWOverQuota(**POOL, message="over")))) == 1
