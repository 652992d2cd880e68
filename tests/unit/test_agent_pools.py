"""What is missing for a NodePool between the bus and its object: whole lists of actions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.actions import Action, Attempt, Create, Delete, Patch, Place, RecordEvent, Send
from agent.host.performing import kubernetes_event
from agent.pools.actions import missing_for_pool
from agent.pools.agreement import (
    AGREED,
    agree,
    agreement_in_epoch,
    agreement_of,
    is_unresolved,
)
from agent.pools.objects import Log, PoolObject, WantedPool
from agent.pools.sides import Deletion, Facts, Origin
from agent.pools.status import shown_status
from agent.reading import digest
from nodepool.contract.commands import ApplyNodePool, DeleteNodePool
from nodepool.contract.log import LogId
from nodepool.contract.model import API_VERSION, FINALIZER, KIND, NodePoolSpec, spec_document
from support.constants import A100, CLUSTER, H100, ORG, ZONE

LOG = Log(LogId("log"), end=100, start=100)
PLACE = Place(ORG, CLUSTER, ZONE)
FAILED = "CWNodePoolNodesRequestFailed"
DECIDES = "it was changed on the bus as well, and the log decides"


def spec(**fields: Any) -> dict[str, object]:
    """A spec as both sides compare it, of two Nodes where it does not say otherwise."""
    given = {"instanceType": H100, "targetNodes": 2, **fields}
    return spec_document(NodePoolSpec.model_validate_json(json.dumps(given)))


def on_bus(**fields: Any) -> WantedPool:
    """The NodePool as the bus has it."""
    return WantedPool("pool", "bus-uid", 1, "10", spec(**fields))


def in_cluster(agreement: WantedPool | None = None, log: Log = LOG, **fields: Any) -> PoolObject:
    """Its object, with the finalizer, where both sides agreed on `agreement` last."""
    found = PoolObject("pool", "uid", 1, "5", spec(**fields), finalizers=(FINALIZER,))
    return found if agreement is None else with_agreement(found, agreement, log)


def with_agreement(found: PoolObject, wanted: WantedPool, log: Log = LOG) -> PoolObject:
    return replace(found, annotations={AGREED: agree(wanted, found, log).text()})


def missing(
    wanted: WantedPool | None,
    found: PoolObject | None,
    attempt: Attempt | None = None,
    log: Log = LOG,
    deleted: int = 0,
    removed: PoolObject | None = None,
    is_leaving: bool = False,
    origins: Sequence[Origin] = (),
    deleted_uid: str = "",
) -> list[Action]:
    facts = Facts(Deletion(deleted, deleted_uid), removed, is_leaving, origins)
    return list(missing_for_pool("pool", wanted, found, attempt, log, PLACE, facts))


def said(id: str, wanted: WantedPool, position: int = 20) -> Origin:
    """What the log says of a NodePool that a command of this id has made what it is."""
    return Origin(id, position, wanted.uid)


def patched(wanted: WantedPool, found: PoolObject, log: Log = LOG, **spec: object) -> Patch:
    """The patch that sets fields of the spec and makes a new agreement."""
    metadata = {
        "resourceVersion": found.version,
        "annotations": {AGREED: agree(wanted, found, log).text()},
    }
    return Patch("NodePool", "pool", {"metadata": metadata, **({"spec": spec} if spec else {})})


def with_labels(patch: Patch, labels: Mapping[str, str]) -> Patch:
    metadata = patch.patch["metadata"]
    assert isinstance(metadata, dict)
    return replace(patch, patch={**patch.patch, "metadata": {**metadata, "labels": labels}})


def released(found: PoolObject) -> Patch:
    metadata = {"resourceVersion": found.version, "finalizers": None}
    return Patch("NodePool", "pool", {"metadata": metadata})


def told(actions: list[Action]) -> list[str]:
    return [action.message for action in actions if isinstance(action, RecordEvent)]


def sent(actions: list[Action]) -> Send:
    """The command, after the object has recorded what was not recorded yet."""
    *records, send = actions
    assert isinstance(send, Send)
    assert [type(record) for record in records] in ([], [Patch])
    return send


def recorded(found: PoolObject, actions: list[Action]) -> PoolObject:
    """The object after it has recorded a command, and the command was sent."""
    record, _ = actions
    assert isinstance(record, Patch)
    metadata = _mapping(record.patch["metadata"])
    text = str(_mapping(metadata["annotations"])[AGREED])
    return replace(found, annotations={**found.annotations, AGREED: text})


def accepted(send: Send) -> Attempt:
    return Attempt(send.id, "accepted", is_shown=True, command=send.command)


def refused(send: Send, reason: str, field: str, message: str) -> Attempt:
    return Attempt(send.id, "refused", True, reason, field, message, send.command)


def _shown(wanted: WantedPool, found: PoolObject) -> PoolObject:
    return replace(found, status=shown_status(wanted, found, 1, is_same_spec=True))


def test_what_is_told_of_an_object_made_again_is_an_event_of_its_own() -> None:
    wanted, fault = on_bus(), {"targetNodes": -1}
    tells = [
        missing(wanted, replace(in_cluster(wanted), uid=uid, spec=fault))[0]
        for uid in ("uid", "uid-2", "uid")
    ]

    first, second, again = (
        kubernetes_event(tell).name for tell in tells if isinstance(tell, RecordEvent)
    )

    assert first == again != second


def test_nothing_is_missing_where_both_sides_agree() -> None:
    wanted = on_bus()
    found = _shown(wanted, in_cluster(wanted))

    assert missing(wanted, found) == []


def test_spellings_and_defaults_are_no_difference() -> None:
    wanted = on_bus(computeClass="spot")
    found = _shown(wanted, in_cluster(wanted))
    raw = {"instanceType": H100, "targetNodes": 2, "computeClass": "Spot"}

    assert missing(wanted, replace(found, spec=raw)) == []


def test_a_pool_of_the_bus_without_an_object_gets_one_that_remembers_the_agreement() -> None:
    wanted = replace(on_bus(), labels={"team": "a"})

    assert missing(wanted, None) == [
        Create(
            "NodePool",
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {
                    "name": "pool",
                    "finalizers": [FINALIZER],
                    "annotations": {AGREED: agree(wanted, None, LOG).text()},
                    "labels": {"team": "a"},
                },
                "spec": wanted.spec,
            },
        )
    ]


def test_a_pool_that_is_being_deleted_gets_no_object() -> None:
    assert missing(replace(on_bus(), deleting=True), None) == []


def test_a_new_object_gets_the_finalizer_before_anything_is_sent() -> None:
    found = replace(in_cluster(), finalizers=("other",))

    record, send = missing(None, found)

    assert isinstance(record, Patch)
    metadata = _mapping(record.patch["metadata"])
    assert metadata["resourceVersion"] == "5"
    assert metadata["finalizers"] == ["other", FINALIZER]
    agreement = agreement_of(recorded(found, [record, send]))
    assert agreement is not None
    assert isinstance(send, Send)
    assert (agreement.uid, [each.id for each in agreement.sent]) == ("", [send.id])


def test_a_new_object_is_created_on_the_bus_and_changes_no_other_of_its_name() -> None:
    send = sent(missing(None, replace(in_cluster(), labels={"team": "a"})))

    assert isinstance(send.command, ApplyNodePool)
    assert send.command.create_only
    assert send.command.path == (ORG, CLUSTER, "pool")
    assert spec_document(send.command.spec) == spec()
    assert send.command.metadata.labels == {"team": "a"}


def test_the_same_object_is_the_same_command_and_another_generation_is_another() -> None:
    first, again = sent(missing(None, in_cluster())), sent(missing(None, in_cluster()))
    other = sent(missing(None, replace(in_cluster(), generation=2)))

    assert first == again
    assert other.id != first.id


def test_nothing_more_is_sent_until_the_read_model_shows_the_outcome() -> None:
    found = in_cluster()
    send = sent(missing(None, found))

    assert missing(None, found, Attempt(send.id)) == []
    assert missing(None, found, replace(accepted(send), is_shown=False)) == []


def test_an_object_that_the_bus_refuses_is_marked_and_not_sent_again() -> None:
    actions = missing(None, in_cluster())
    found, send = recorded(in_cluster(), actions), sent(actions)
    attempt = refused(send, "Forbidden", "spec.nodeLabels", "is not allowed")

    (mark,) = missing(None, found, attempt)
    assert isinstance(mark, Patch)
    annotations = _mapping(_mapping(mark.patch["metadata"])["annotations"])
    marked = replace(found, annotations={**found.annotations, **_texts(annotations)})
    (status,) = missing(None, marked)

    assert isinstance(status, Patch)
    condition, stalled = _conditions(status)
    assert (stalled["type"], stalled["status"]) == ("Stalled", "True")
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Validated",
        "False",
        "Invalid",
    )
    assert condition["message"] == "spec.nodeLabels: is not allowed"
    assert condition["observedGeneration"] == 1
    assert isinstance(sent(missing(None, replace(marked, generation=2))), Send)


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)
    return value


def _texts(value: Mapping[str, object]) -> Mapping[str, str]:
    return {key: str(text) for key, text in value.items()}


def _conditions(status: Patch) -> list[dict[str, object]]:
    conditions = _mapping(status.patch["status"])["conditions"]
    assert isinstance(conditions, list)
    return conditions


def test_an_object_that_cannot_be_read_is_invalid_and_names_the_field() -> None:
    (status,) = missing(None, replace(in_cluster(), spec={"instanceType": H100}))

    assert isinstance(status, Patch)
    assert {each["message"] for each in _conditions(status)} == {"spec.targetNodes: is required"}


def test_an_object_that_cannot_be_read_any_more_is_set_back_and_told() -> None:
    wanted = on_bus()
    found = replace(in_cluster(wanted), spec={"instanceType": H100, "targetNodes": "many"})

    actions = missing(wanted, found)

    assert told(actions) == ["spec.targetNodes: input should be a valid integer"]
    assert actions[1:] == [
        patched(
            wanted,
            found,
            targetNodes=2,
            autoscaling=False,
            lifecycle=wanted.spec["lifecycle"],
        )
    ]


def test_equal_sides_without_an_agreement_agree() -> None:
    wanted, found = on_bus(), in_cluster()

    assert missing(wanted, found) == [patched(wanted, found)]


def test_different_sides_without_an_agreement_follow_the_log_and_are_told() -> None:
    wanted, found = on_bus(), in_cluster(targetNodes=7)

    actions = missing(wanted, found)

    assert told(actions) == [f"spec.targetNodes: 7 is not taken, 2 holds: {DECIDES}"]
    assert actions[1:] == [patched(wanted, found, targetNodes=2)]
    assert [action.severity for action in actions if isinstance(action, RecordEvent)] == ["Warning"]
    assert [action.reason for action in actions if isinstance(action, RecordEvent)] == [FAILED]


def test_an_object_of_another_type_is_replaced_because_that_cannot_change() -> None:
    wanted, found = on_bus(), in_cluster(instanceType=A100)

    actions = missing(wanted, found)
    bare = replace(found, finalizers=(), version="6")

    assert told(actions) == [f'spec.instanceType: "{A100}" is not taken, "{H100}" holds: {DECIDES}']
    assert actions[1:] == [released(found)]
    assert missing(wanted, bare)[1:] == [Delete("NodePool", "pool", "uid", version="6")]


def test_of_labels_that_both_sides_have_changed_those_are_told_that_differ() -> None:
    # given many labels, of which each side has set two since they agreed
    many = {f"label-{number}": "set" for number in range(50)}
    wanted = on_bus(nodeLabels=many | {"bus": "1", "label-7": "bus"})
    found = in_cluster(
        on_bus(nodeLabels=many), nodeLabels=many | {"cluster": "1", "label-7": "cluster"}
    )

    assert told(missing(wanted, found)) == [
        'spec.nodeLabels: {"cluster": "1", "label-7": "cluster"} is not taken,'
        f' {{"bus": "1", "label-7": "bus"}} holds: {DECIDES}'
    ]


def test_a_change_on_the_bus_alone_is_patched_with_its_agreement_and_not_told() -> None:
    before, wanted = on_bus(), replace(on_bus(targetNodes=4), generation=2, version="20")
    found = in_cluster(before)

    assert missing(wanted, found) == [patched(wanted, found, targetNodes=4)]


def test_a_target_that_the_autoscaler_has_set_is_patched() -> None:
    bounds: dict[str, Any] = {"autoscaling": True, "minNodes": 0, "maxNodes": 9}
    before = on_bus(**bounds)
    wanted = replace(on_bus(**bounds, targetNodes=5), generation=2, version="20")
    found = in_cluster(before, **bounds)

    assert missing(wanted, found) == [patched(wanted, found, targetNodes=5)]


def test_labels_that_the_bus_no_longer_has_are_removed() -> None:
    before = replace(on_bus(nodeLabels={"a": "x", "b": "y"}), labels={"l": "1"})
    wanted = replace(on_bus(nodeLabels={"b": "z"}), version="20")
    found = replace(in_cluster(nodeLabels={"a": "x", "b": "y"}), labels={"l": "1"})
    found = with_agreement(found, before)

    (patch,) = missing(wanted, found)

    assert isinstance(patch, Patch)
    assert patch.patch["spec"] == {"nodeLabels": {"a": None, "b": "z"}}
    assert _mapping(patch.patch["metadata"])["labels"] == {"l": None}


def test_a_change_in_the_cluster_alone_is_sent_with_what_it_was_read_from() -> None:
    wanted = replace(on_bus(), annotations={"kept": "yes"})
    found = replace(in_cluster(wanted, targetNodes=5), generation=2)

    send = sent(missing(wanted, found))

    assert isinstance(send.command, ApplyNodePool)
    assert not send.command.create_only
    assert spec_document(send.command.spec) == spec(targetNodes=5)
    metadata = send.command.metadata
    assert (metadata.uid, metadata.generation, metadata.resource_version) == ("bus-uid", 1, "10")
    assert metadata.annotations == {"kept": "yes"}


def test_labels_alone_are_sent_under_an_id_of_their_own() -> None:
    wanted = on_bus()
    found = in_cluster(wanted)

    first = sent(missing(wanted, replace(found, labels={"l": "1"})))
    second = sent(missing(wanted, replace(found, labels={"l": "2"})))

    assert isinstance(first.command, ApplyNodePool)
    assert first.command.metadata.labels == {"l": "1"}
    assert first.id != second.id


def test_region_affinity_and_racks_are_sent_like_any_other_field() -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    for fields in (
        {"region": ZONE},
        {"affinity": affinity},
        {"targetNodes": None, "targetRacks": 1},
    ):
        wanted = on_bus()
        send = sent(missing(wanted, in_cluster(wanted, **fields)))

        assert isinstance(send.command, ApplyNodePool)
        assert spec_document(send.command.spec) == spec(**fields)


def test_changes_of_both_sides_in_other_fields_are_both_kept() -> None:
    before = on_bus()
    wanted = replace(on_bus(targetNodes=4), generation=2, version="20")
    found = in_cluster(before, nodeLabels={"a": "x"})

    actions = missing(wanted, found)
    rebased = with_agreement(
        replace(in_cluster(targetNodes=4, nodeLabels={"a": "x"}), generation=2), wanted
    )

    assert actions == [patched(wanted, found, targetNodes=4)]
    send = sent(missing(wanted, rebased))
    assert isinstance(send.command, ApplyNodePool)
    assert spec_document(send.command.spec) == spec(targetNodes=4, nodeLabels={"a": "x"})


def test_changes_that_do_not_fit_together_are_not_mixed() -> None:
    bounds: dict[str, Any] = {"autoscaling": True, "minNodes": 0, "maxNodes": 9}
    before = on_bus(**bounds)
    wanted = replace(on_bus(**{**bounds, "maxNodes": 5}), generation=2, version="20")
    found = in_cluster(before, **bounds, targetNodes=8)

    actions = missing(wanted, found)

    assert told(actions) == [f"spec.targetNodes: 8 is not taken, 2 holds: {DECIDES}"]
    assert actions[1:] == [patched(wanted, found, targetNodes=2, maxNodes=5)]


def test_the_same_wish_of_both_sides_is_agreed_and_told_to_nobody() -> None:
    before, wanted = on_bus(), replace(on_bus(targetNodes=4), generation=2, version="20")
    found = replace(in_cluster(before, targetNodes=4), generation=2)

    assert missing(wanted, found) == [patched(wanted, found)]


def test_different_wishes_for_a_field_follow_the_log_and_the_loser_is_told_first() -> None:
    before, wanted = on_bus(), replace(on_bus(targetNodes=4), generation=2, version="20")
    found = replace(in_cluster(before, targetNodes=6), generation=2)

    actions = missing(wanted, found)

    assert told(actions[:1]) == [f"spec.targetNodes: 6 is not taken, 4 holds: {DECIDES}"]
    assert actions[1:] == [patched(wanted, found, targetNodes=4)]


def test_a_second_edit_after_an_accepted_one_is_sent_and_not_undone() -> None:
    before = on_bus()
    edited = replace(in_cluster(before, targetNodes=5), generation=2)
    actions = missing(before, edited)
    first, attempt = recorded(edited, actions), accepted(sent(actions))
    wanted = replace(on_bus(targetNodes=5), generation=2, version="20")
    second = replace(first, generation=3, spec=spec(targetNodes=6))

    again = missing(wanted, second, attempt)

    # The object records first what both sides have, from which the next command starts.
    agreement, command = agreement_of(recorded(second, again)), sent(again).command
    assert agreement is not None
    assert (agreement.version, len(agreement.sent)) == (20, 1)
    assert isinstance(command, ApplyNodePool)
    assert spec_document(command.spec) == spec(targetNodes=6)


def test_an_edit_after_a_creation_of_which_nothing_is_known_any_more_is_sent_and_not_undone() -> (
    None
):
    # given an object that the bus has, edited before both sides could agree
    creation = missing(None, in_cluster())
    wanted = replace(on_bus(), version="20")
    edited = replace(recorded(in_cluster(), creation), generation=2, spec=spec(targetNodes=5))

    # when an agent that knows nothing of the command compares them
    actions = missing(wanted, edited, origins=[said(sent(creation).id, wanted)])

    # then it records what both had, and sends the edit
    agreement, command = agreement_of(recorded(edited, actions)), sent(actions).command
    assert agreement is not None
    assert (agreement.version, agreement.fields["targetNodes"]) == (20, digest(2))
    assert isinstance(command, ApplyNodePool)
    assert spec_document(command.spec) == spec(targetNodes=5)


@pytest.mark.parametrize("target", [2, 6], ids=["back to what it was", "to something else"])
def test_an_edit_after_a_change_of_which_nothing_is_known_any_more_is_sent(target: int) -> None:
    before = on_bus()
    changed = replace(in_cluster(before, targetNodes=5), generation=2)
    change = missing(before, changed)
    wanted = replace(on_bus(targetNodes=5), generation=2, version="20")
    edited = replace(recorded(changed, change), generation=3, spec=spec(targetNodes=target))

    command = sent(missing(wanted, edited, origins=[said(sent(change).id, wanted)])).command

    assert isinstance(command, ApplyNodePool)
    assert spec_document(command.spec) == spec(targetNodes=target)


def test_an_edit_after_a_creation_that_was_tried_twice_is_sent() -> None:
    # given a creation that was refused because of another NodePool, which is gone since
    first = missing(None, in_cluster())
    found, conflict = recorded(in_cluster(), first), "Conflict"
    second = missing(None, found, refused(sent(first), conflict, "metadata.name", "exists"))
    assert sent(second).id != sent(first).id
    wanted = replace(on_bus(), version="20")
    edited = replace(recorded(found, second), generation=2, spec=spec(targetNodes=5))

    # when an agent that knows nothing of it compares an edited object
    command = sent(missing(wanted, edited, origins=[said(sent(second).id, wanted)])).command

    # then the edit is sent
    assert isinstance(command, ApplyNodePool)
    assert spec_document(command.spec) == spec(targetNodes=5)


def test_an_edit_after_two_commands_of_which_the_bus_took_the_first_is_sent() -> None:
    # given a command whose outcome is not known, and one for a later edit that is refused for it
    before = on_bus()
    changed = replace(in_cluster(before, targetNodes=5), generation=2)
    first = missing(before, changed)
    later = replace(recorded(changed, first), generation=3, spec=spec(targetNodes=6))
    second = missing(before, later)
    attempt = refused(sent(second), "Conflict", "metadata.resourceVersion", "10 is stale")
    wanted = replace(on_bus(targetNodes=5), generation=2, version="20")

    # when the read model shows the first
    origins = [said(sent(first).id, wanted)]
    command = sent(missing(wanted, recorded(later, second), attempt, origins=origins)).command

    # then the later edit is sent again, and not undone
    assert isinstance(command, ApplyNodePool)
    assert spec_document(command.spec) == spec(targetNodes=6)


def test_what_the_autoscaler_has_made_of_what_was_sent_is_followed() -> None:
    before = on_bus()
    changed = replace(in_cluster(before, targetNodes=5), generation=2)
    change = missing(before, changed)
    wanted = replace(on_bus(targetNodes=7), generation=3, version="20")
    found = replace(recorded(changed, change), generation=3, spec=spec(targetNodes=6))

    actions = missing(wanted, found, origins=[said(sent(change).id, wanted, 15), said("", wanted)])

    assert told(actions) == [f"spec.targetNodes: 6 is not taken, 7 holds: {DECIDES}"]
    assert actions[1:] == [patched(wanted, found, targetNodes=7)]


@pytest.mark.parametrize("id", ["uid.x.new.abc", "uid.²..", "a.b", "uid.1.new", "...", "uid"])
def test_an_id_that_somebody_has_chosen_says_nothing(id: str) -> None:
    wanted = replace(on_bus(targetNodes=4), version="20")

    assert missing(wanted, in_cluster(), origins=[said(id, wanted)]) == missing(
        wanted, in_cluster()
    )


def test_what_was_sent_for_an_object_is_waited_for_until_the_read_model_shows_it() -> None:
    before = on_bus()
    changed = replace(in_cluster(before, targetNodes=5), generation=2)
    change = missing(before, changed)
    earlier = replace(on_bus(targetNodes=3), generation=2, version="15")
    edited = replace(recorded(changed, change), generation=3, spec=spec(targetNodes=6))

    assert missing(earlier, edited, origins=[said(sent(change).id, on_bus(targetNodes=5))]) == []


def test_a_nodepool_that_only_the_read_model_lacks_is_not_created_again() -> None:
    # given an object with an edit, whose NodePool is in the log, and a read model that is filled
    before = on_bus()
    edited = replace(in_cluster(before, targetNodes=5), generation=2)

    assert missing(None, edited, origins=[said("", before)]) == []


def test_an_edit_that_is_taken_back_before_its_command_is_processed_is_taken_back_later() -> None:
    # given an edit whose command has no outcome, and that is taken back
    before = on_bus()
    edited = replace(in_cluster(before, targetNodes=5), generation=2)
    change = missing(before, edited)
    found = replace(recorded(edited, change), generation=3, spec=before.spec)
    waiting = missing(before, found)

    # when the command is processed after that
    wanted = replace(on_bus(targetNodes=5), generation=2, version="20")
    command = sent(missing(wanted, found, origins=[said(sent(change).id, wanted)])).command

    # then its record was kept, and the bus is told the newer state of the object
    assert not any(isinstance(each, Patch) and "metadata" in each.patch for each in waiting)
    assert isinstance(command, ApplyNodePool)
    assert command.spec.target_nodes == before.spec["targetNodes"]


def test_new_labels_are_not_set_back_by_a_read_model_that_is_late() -> None:
    # given a change of labels that the log has, and a read model that is thought to show it
    before = on_bus()
    labelled = replace(in_cluster(before), labels={"l": "x"})
    actions = missing(before, labelled)
    found, attempt = recorded(labelled, actions), accepted(sent(actions))
    origins = [said(sent(actions).id, before)]

    assert is_unresolved(agreement_in_epoch(found, before, LOG), attempt)
    assert missing(before, found, attempt, origins=origins) == []


def test_an_object_from_a_backup_older_than_what_was_sent_for_it_follows_the_bus() -> None:
    before = on_bus()
    edited = replace(in_cluster(before, nodeLabels={"a": "x"}), generation=2)
    change, label = missing(before, edited), replace(in_cluster(before), labels={"l": "x"})
    relabel = sent(missing(before, label))
    wanted = replace(on_bus(nodeLabels={"a": "x"}), generation=2, version="20")
    labelled = replace(on_bus(), version="20", labels={"l": "x"})
    found = in_cluster(before)

    restored = missing(wanted, found, origins=[said(sent(change).id, wanted)])
    relabelled = missing(labelled, found, origins=[said(relabel.id, labelled)])

    assert restored == [patched(wanted, found, nodeLabels={"a": "x"})]
    assert relabelled == [with_labels(patched(labelled, found), {"l": "x"})]


def test_a_change_of_the_bus_by_another_is_followed_whatever_was_sent_before() -> None:
    before = on_bus()
    wanted = replace(on_bus(targetNodes=4), generation=2, version="20")
    found = replace(in_cluster(before, targetNodes=6), generation=2)

    assert missing(wanted, found, origins=[said("", wanted)]) == missing(wanted, found)
    assert missing(wanted, found, origins=[said("uid-of-another.1.new.0", wanted)]) == missing(
        wanted, found
    )


def test_a_change_that_the_bus_undid_after_accepting_it_is_not_sent_again() -> None:
    before = on_bus()
    edited = replace(in_cluster(before, targetNodes=5), generation=2)
    actions = missing(before, edited)
    found, attempt = recorded(edited, actions), accepted(sent(actions))
    wanted = replace(on_bus(targetNodes=2), generation=3, version="30")

    assert missing(wanted, found, attempt) == [patched(wanted, found, targetNodes=2)]


def test_a_refused_change_is_told_with_its_cause_and_set_back() -> None:
    wanted = on_bus()
    edited = replace(in_cluster(wanted, nodeLabels={"coreweave.com/a": "x"}), generation=2)
    actions = missing(wanted, edited)
    found, send = recorded(edited, actions), sent(actions)

    actions = missing(wanted, found, refused(send, "Forbidden", "spec.nodeLabels", "not allowed"))

    lost = '{"coreweave.com/a": "x"}'
    assert told(actions) == [
        f"spec.nodeLabels: {lost} is not taken, nothing holds: spec.nodeLabels: not allowed"
    ]
    (patch,) = actions[1:]
    assert isinstance(patch, Patch)
    assert patch.patch["spec"] == {"nodeLabels": None}


def test_a_conflict_with_what_is_not_compared_is_agreed_anew_under_another_id() -> None:
    before = on_bus()
    edited = replace(in_cluster(before, targetNodes=5), generation=2)
    actions = missing(before, edited)
    found, send = recorded(edited, actions), sent(actions)
    wanted = replace(on_bus(), version="20", annotations={"a": "b"})
    attempt = refused(send, "Conflict", "metadata.resourceVersion", "10 is stale")

    again = missing(wanted, found, attempt)

    agreement = agreement_of(recorded(found, again))
    assert agreement is not None
    assert agreement.version == 20
    assert sent(again).id != send.id


def test_a_pool_that_the_bus_deleted_loses_its_object_without_a_word_to_the_bus() -> None:
    found = in_cluster(on_bus())

    actions = missing(None, found, deleted=50)
    bare = replace(found, finalizers=(), version="6")

    assert told(actions) == ["NodePool pool was deleted on the bus"]
    assert actions[1:] == [released(found)]
    assert missing(None, bare, deleted=50)[1:] == [Delete("NodePool", "pool", "uid", version="6")]


def test_a_pool_that_was_deleted_in_a_restored_log_loses_its_object() -> None:
    # given an agreement that is newer than all that the restored log has
    found = in_cluster(on_bus())
    before = Log(LOG.id, 4)

    # when that has deleted the NodePool before the agent was there, or another one of its name
    actions = missing(None, found, log=before, deleted=3, deleted_uid=on_bus().uid)
    others = missing(None, found, log=before, deleted=3, deleted_uid="another")

    # then its object goes, and one that the log has lost is created again
    assert actions[1:] == [released(found)]
    assert isinstance(sent(others).command, ApplyNodePool)


def test_an_edit_of_a_pool_that_the_bus_deleted_is_told_as_lost() -> None:
    actions = missing(None, in_cluster(on_bus(), targetNodes=9), deleted=50)

    assert told(actions) == [
        "spec.targetNodes: the change is not taken: NodePool pool was deleted on the bus"
    ]


def test_a_pool_that_a_restored_log_has_never_known_is_created_again() -> None:
    send = sent(missing(None, in_cluster(on_bus()), deleted=0))

    assert isinstance(send.command, ApplyNodePool)
    assert send.command.create_only


def test_an_object_of_another_log_is_created_there() -> None:
    found = in_cluster(on_bus(), log=Log(LogId("old"), 100))

    assert isinstance(sent(missing(None, found, deleted=50)).command, ApplyNodePool)


def test_an_older_read_model_is_waited_for() -> None:
    newer = replace(on_bus(targetNodes=4), generation=2, version="150")
    found = in_cluster(newer, targetNodes=4)

    assert missing(on_bus(), found, log=Log(LOG.id, end=200, start=100)) == []


def test_a_restored_log_decides_and_tells_what_is_lost() -> None:
    newer = replace(on_bus(targetNodes=4), generation=2, version="150")
    found, wanted = in_cluster(newer, targetNodes=4), on_bus()

    actions = missing(wanted, found)

    assert told(actions) == [f"spec.targetNodes: 4 is not taken, 2 holds: {DECIDES}"]
    assert actions[1:] == [patched(wanted, found, targetNodes=2)]


def test_an_object_from_an_old_backup_is_set_to_what_the_bus_has_now() -> None:
    wanted = replace(on_bus(targetNodes=8, nodeLabels={"a": "x"}), generation=5, version="90")
    found = in_cluster(on_bus())

    assert missing(wanted, found) == [patched(wanted, found, targetNodes=8, nodeLabels={"a": "x"})]


def test_an_object_from_an_old_backup_is_no_edit_of_what_was_sent_since() -> None:
    before = on_bus()
    edited = replace(in_cluster(before, targetNodes=8), generation=2)
    attempt = accepted(sent(missing(before, edited)))
    wanted = replace(on_bus(targetNodes=8), generation=2, version="20")
    found = in_cluster(before)

    assert missing(wanted, found, attempt) == [patched(wanted, found, targetNodes=8)]


def test_another_pool_of_the_same_name_is_followed_and_nobody_is_told() -> None:
    wanted = replace(on_bus(targetNodes=4), uid="other")
    found = in_cluster(on_bus())

    assert missing(wanted, found) == [patched(wanted, found, targetNodes=4)]


def test_an_agreement_that_was_copied_with_a_manifest_counts_for_nothing() -> None:
    original = in_cluster(on_bus())
    copy = replace(original, name="copy", uid="copy-uid")

    actions = missing_for_pool("copy", None, copy, None, LOG, PLACE, Facts(Deletion(50)))

    assert isinstance(sent(list(actions)).command, ApplyNodePool)


def test_an_object_that_is_deleted_deletes_the_pool_that_it_stands_for() -> None:
    wanted = on_bus()
    found = replace(in_cluster(wanted), deleting=True)

    send = sent(missing(wanted, found))

    command = DeleteNodePool(org=ORG, cluster=CLUSTER, pool="pool", uid="bus-uid")
    assert send.command == command
    assert missing(None, found, accepted(send), deleted=0) == [released(found)]


def test_a_deletion_of_what_is_gone_lets_the_object_go() -> None:
    wanted = on_bus()
    found = replace(in_cluster(wanted), deleting=True)
    send = sent(missing(wanted, found))

    for reason in ("NotFound", "Conflict"):
        attempt = refused(send, reason, "metadata.name", "is another")
        assert missing(wanted, found, attempt) == [released(found)]


def test_an_object_whose_deletion_the_bus_has_begun_waits_for_its_nodes() -> None:
    wanted = replace(on_bus(), deleting=True)
    found = in_cluster(on_bus())

    assert missing(wanted, found) == [Delete("NodePool", "pool", "uid")]
    waiting = _shown(wanted, replace(found, deleting=True))
    assert missing(wanted, waiting) == []
    assert missing(None, waiting, deleted=50) == [released(waiting)]


def test_an_object_that_is_deleted_while_another_pool_has_its_name_only_goes() -> None:
    found = replace(in_cluster(on_bus()), deleting=True)

    assert missing(replace(on_bus(), uid="other"), found) == [released(found)]


def test_a_new_object_waits_until_the_pool_of_its_name_is_gone() -> None:
    assert missing(replace(on_bus(), deleting=True), in_cluster()) == []


def test_an_object_of_another_log_waits_until_the_pool_of_its_name_is_gone() -> None:
    # given an object that has agreed with another log, as after a move of the bus
    wanted = replace(on_bus(), deleting=True)
    found = in_cluster(on_bus())
    agreement = json.loads(found.annotations[AGREED])
    text = json.dumps({**agreement, "log": "another log"})
    found = replace(found, annotations={**found.annotations, AGREED: text})

    # when this log deletes a NodePool of the same name
    # then that is another one
    assert missing(wanted, found) == []


def test_a_deleted_object_without_the_finalizer_is_left_to_others() -> None:
    found = replace(in_cluster(on_bus()), deleting=True, finalizers=("other",))
    found = _shown(on_bus(), found)

    assert missing(on_bus(), found) == []


def test_a_pool_created_again_in_a_restored_log_is_not_waited_for() -> None:
    lost = replace(on_bus(), version="150")
    found = in_cluster(lost)
    log = Log(LOG.id, end=200, start=100)
    actions = missing(None, found, log=log)
    wanted = replace(on_bus(), uid="other", version="140")

    assert missing(wanted, found, log=log) == []
    again = recorded(found, actions)
    assert missing(wanted, again, accepted(sent(actions)), log) == [patched(wanted, again)]


def test_an_object_that_lost_its_annotation_is_compared_with_what_is_remembered() -> None:
    wanted = on_bus()
    agreement = in_cluster(wanted).annotations[AGREED]
    found = replace(in_cluster(), generation=2, agreed=agreement)
    edited = replace(found, spec=spec(targetNodes=9))

    # What only the cluster has changed is sent; where nothing is, it is written again.
    assert isinstance(sent(missing(wanted, edited)).command, ApplyNodePool)
    assert missing(wanted, found) == [patched(wanted, found)]


def test_an_object_that_was_deleted_past_the_agent_deletes_its_pool() -> None:
    wanted = on_bus()
    removed = in_cluster(wanted)

    send = sent(missing(wanted, None, removed=removed))

    command = DeleteNodePool(org=ORG, cluster=CLUSTER, pool="pool", uid="bus-uid")
    assert send.command == command
    # Where the bus refuses that, it is created again, and so is one of another uid.
    attempt = refused(send, "Forbidden", "", "no")
    for actions in (
        missing(wanted, None, attempt, removed=removed),
        missing(replace(wanted, uid="other"), None, removed=removed),
        missing(wanted, None, removed=in_cluster(wanted, log=Log(LogId("old"), 100))),
        missing(wanted, None, removed=in_cluster()),
    ):
        assert [type(action) for action in actions] == [Create]


def test_a_deletion_that_the_bus_refuses_is_told_once() -> None:
    wanted = on_bus()
    found = _shown(wanted, replace(in_cluster(wanted), deleting=True))
    attempt = refused(sent(missing(wanted, found)), "Forbidden", "", "it is kept")

    actions = missing(wanted, found, attempt)

    assert told(actions) == ["it is kept"]
    (patch,) = actions[1:]
    assert isinstance(patch, Patch)
    metadata = patch.patch["metadata"]
    assert isinstance(metadata, Mapping)
    recorded = replace(found, annotations={**found.annotations, **metadata["annotations"]})
    assert missing(wanted, recorded, attempt) == []
    assert missing(wanted, recorded) == []


def test_objects_that_go_with_their_kind_are_let_go_and_their_pools_stay() -> None:
    wanted = on_bus()
    found = replace(in_cluster(wanted), deleting=True)

    assert missing(wanted, found, is_leaving=True) == [released(found)]
    assert missing(wanted, None, removed=found, is_leaving=True) == []


def test_conditions_of_an_object_that_is_being_deleted_are_of_its_generation() -> None:
    wanted = replace(on_bus(), status={"conditions": [{"type": "NodesRemoved"}]})
    found = replace(in_cluster(wanted, targetNodes=9), generation=4, deleting=True)

    status = shown_status(wanted, found, 3, is_same_spec=False)

    assert status["conditions"] == [{"type": "NodesRemoved", "observedGeneration": 4}]
