import json
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from pydantic import ValidationError

from nodepool.contract import commands, events
from nodepool.contract.commands import (
    AddMachines,
    ApplyNodePool,
    BreakMachine,
    RegisterCluster,
    ScaleNodePool,
    SetQuota,
)
from nodepool.contract.decode import Unreadable, decode, explain
from nodepool.contract.events import CWNodeDeleted, MachineAdded, NodePoolValidated, Wake
from nodepool.contract.messages import (
    Envelope,
    Event,
    Message,
    Outcome,
    envelope_of,
    members,
    path_fields,
)
from nodepool.contract.model import ComputeClass, ManifestMetadata, NodePoolSpec
from nodepool.contract.subjects import Address, address_of, filter_of, subject_of, token
from unit.samples import NOON, SAMPLES

GOLDEN = Path(__file__).parent / "golden.jsonl"
SCALE = "np.cmd.acme.prod.train.ScaleNodePool"
APPLY = "np.cmd.acme.prod.train.ApplyNodePool"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MANIFEST: Mapping[str, object] = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train"},
    "spec": {"instanceType": "gd-8xh100ib-i128", "targetNodes": 3},
}


def known(kind: type[Message]) -> dict[str, type[Message]]:
    """Every class of this kind that lies on the bus, by name."""
    return {
        name: found
        for module in (commands, events)
        for name, found in vars(module).items()
        if isinstance(found, type)
        and issubclass(found, kind)
        and found.__module__.startswith(module.__name__)
        and not found.__subclasses__()
    }


def recorded() -> list[dict[str, object]]:
    """The lines of the golden file."""
    return [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def seal(before: object, subject: object, content: object) -> str:
    """What ties a line to all the lines before it."""
    text = json.dumps([before, subject, content], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:16]


def line(message: Message, before: object) -> str:
    """The line that records a message, after the line with the seal `before`."""
    outcome = isinstance(message, Outcome)
    service = "validator" if outcome else getattr(message, "speaker", "")
    subject = subject_of(message, service)
    envelope = envelope_of(type(message)).model_construct(
        id="41.validator.0",
        type=type(message).__name__,
        source=service or "nodepool",
        subject="/".join(message.path),
        time=NOON,
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        correlationid="c1",
        causationid="40",
        causeposition=41,
        data=message,
    )
    content = json.loads(envelope.encode())
    sealed = {"subject": subject, "content": content, "seal": seal(before, subject, content)}
    return json.dumps(sealed, ensure_ascii=False)


def read(subject: object, content: object) -> Envelope[Message] | Unreadable:
    """What a subject and its content decode to today."""
    address = address_of(str(subject))
    assert address is not None
    kind = known(Message)[address.name]
    return decode(kind, str(subject), json.dumps(content).encode(), {}, 99)


def taken(
    kind: type[Message], subject: str, content: object, headers: Mapping[str, str] | None = None
) -> Envelope[Message] | Unreadable:
    """What is understood of a command sent at position 7."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return decode(kind, subject, body, dict(headers or {}), 7)


def fault(kind: type[Message], subject: str, content: object) -> tuple[str, str]:
    """The field and the cause for which a command is refused."""
    found = taken(kind, subject, content)
    assert isinstance(found, Unreadable), f"taken as {found!r}"
    return found.field, found.cause


# The golden file: what was ever said stays readable, with the same meaning.


def test_every_message_class_has_a_golden_sample() -> None:
    names = {str(sample["subject"]).rsplit(".", 1)[1] for sample in recorded()}
    seals = [sample["seal"] for sample in recorded()]

    lines: list[str] = []
    for sample in SAMPLES[len(seals) :]:
        lines.append(line(sample, seals[-1]))
        seals.append(json.loads(lines[-1])["seal"])

    assert lines == [], "add these lines at the end of golden.jsonl"
    assert names == set(known(Message)), "a class without a value in samples.py, or one taken away"


def test_every_golden_sample_decodes_to_the_recorded_value_for_ever() -> None:
    samples = recorded()

    assert len(samples) == len(SAMPLES)
    for number, (sample, expected) in enumerate(zip(samples, SAMPLES, strict=True), 1):
        found = read(sample["subject"], sample["content"])

        assert isinstance(found, Envelope), f"line {number}: {found}"
        assert found.data == expected, f"line {number} means something else than it did"


def test_an_envelope_keeps_what_links_it_to_its_cause() -> None:
    for sample in recorded():
        found = read(sample["subject"], sample["content"])

        assert isinstance(found, Envelope)
        if isinstance(found.data, Event):
            assert found.model_dump(exclude={"data", "source", "subject", "type"}) == {
                "specversion": "1.0",
                "id": "41.validator.0",
                "time": NOON,
                "datacontenttype": "application/json",
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "correlationid": "c1",
                "causationid": "40",
                "causeposition": 41,
            }


def test_nothing_recorded_is_renamed_or_left_out_today() -> None:
    for number, (sample, value) in enumerate(zip(recorded(), SAMPLES, strict=True), 1):
        today = json.loads(line(value, ""))

        assert today["subject"] == sample["subject"], f"line {number} went elsewhere"
        assert _lacks(sample["content"], today["content"], "") == [], f"line {number}"


def _lacks(old: object, new: object, where: str) -> list[str]:
    """The fields of `old` that `new` has not got, or has with another value."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            fault
            for name, value in old.items()
            for fault in _lacks(value, new.get(name), f"{where}.{name}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            fault
            for index, (before, after) in enumerate(zip(old, new, strict=True))
            for fault in _lacks(before, after, f"{where}[{index}]")
        ]
    return [] if old == new else [where]


def test_the_golden_file_is_only_ever_added_to() -> None:
    before: object = ""
    for number, sample in enumerate(recorded(), 1):
        name = str(sample["subject"]).rsplit(".", 1)[1]

        expected = seal(before, sample["subject"], sample["content"])

        assert sample["seal"] == expected, (
            f"line {number} of golden.jsonl ({name}), or one before it, is not as it was recorded:"
            " put it back, and record a new form of a message at the end"
        )
        before = expected


# Readers ignore what they do not know; writers of commands are refused for it.


def test_an_unknown_field_of_an_event_is_ignored_wherever_it_is() -> None:
    for sample in recorded():
        content = sample["content"]
        assert isinstance(content, dict)
        if not str(sample["subject"]).startswith("np.evt."):
            continue
        more = {**content, "later": 1, "data": _with_more(content["data"])}

        assert read(sample["subject"], more) == read(sample["subject"], content)


def _with_more(data: object) -> object:
    """The data of an event as a later release may write it: a field more in each object.

    Objects whose keys are anybody's (labels and annotations) stay as they are, and so does an
    affinity, which is the user's own document.
    """
    match data:
        case dict():
            free = ("labels", "annotations", "nodeLabels", "nodeAnnotations", "affinity")
            known = {k: v if k in free else _with_more(v) for k, v in data.items()}
            return {**known, "laterField": {"a": 1}}
        case list():
            return [_with_more(item) for item in data]
    return data


@pytest.mark.parametrize(
    ("content", "field"),
    [
        pytest.param({"targetNodes": 3, "later": 1}, "later", id="at the top"),
        pytest.param({"target_nodes": 3}, "targetNodes", id="the Python name of a field"),
    ],
)
def test_an_unknown_field_of_a_command_is_refused_by_its_name(content: object, field: str) -> None:
    assert fault(ScaleNodePool, SCALE, content)[0] == field


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"targetnodes": 1}, "spec.targetnodes"),
        ({"image": {"tag": "x"}}, "spec.image.tag"),
        ({"lifecycle": {"scaledownstrategy": "IdleOnly"}}, "spec.lifecycle.scaledownstrategy"),
        (
            {"nodeTaints": [{"key": "a", "effect": "NoSchedule", "x": 1}]},
            "spec.nodeTaints[0].x",
        ),
        ({"affinity": {"podAffinity": {}}}, "spec.affinity.podAffinity"),
    ],
)
def test_an_unknown_field_deep_in_a_manifest_is_refused_by_its_path(
    spec: dict[str, object], field: str
) -> None:
    manifest = {**MANIFEST, "spec": {"instanceType": "x", "targetNodes": 3, **spec}}

    assert fault(ApplyNodePool, APPLY, manifest) == (field, "is not a known field")


# Three ways to send a command.


def test_a_structured_cloudevent_is_a_command_with_its_own_id_and_trace() -> None:
    content = {
        "specversion": "1.0",
        "id": "c1",
        "type": "ScaleNodePool",
        "source": "me",
        "traceparent": "00-a-b-01",
        "anextension": "x",
        "data": {"targetNodes": 5},
    }

    found = taken(ScaleNodePool, SCALE, content, {"Nats-Msg-Id": "other", "ce-id": "another"})

    assert found == envelope_of(ScaleNodePool).model_construct(
        id="c1",
        type="ScaleNodePool",
        source="me",
        subject="acme/prod/train",
        traceparent="00-a-b-01",
        correlationid="c1",
        data=ScaleNodePool(org="acme", cluster="prod", pool="train", target_nodes=5),
    )


def test_a_binary_cloudevent_is_a_command_whose_attributes_are_headers() -> None:
    headers = {"CE-Id": "c2", "ce-source": "me", "TraceParent": "00-a-b-01", "ce-type": "x"}

    found = taken(ScaleNodePool, SCALE, {"targetNodes": 5}, headers)

    assert found == envelope_of(ScaleNodePool).model_construct(
        id="c2",
        type="ScaleNodePool",
        source="me",
        subject="acme/prod/train",
        traceparent="00-a-b-01",
        correlationid="c2",
        data=ScaleNodePool(org="acme", cluster="prod", pool="train", target_nodes=5),
    )


@pytest.mark.parametrize(
    ("headers", "id"),
    [
        pytest.param({}, "7", id="its position in the log"),
        pytest.param({"Nats-Msg-Id": "mine"}, "mine", id="its message id"),
        pytest.param({"Nats-Msg-Id": "mine", "ce-id": "c3"}, "c3", id="its event id before that"),
    ],
)
def test_bare_json_is_a_command_known_by_what_there_is(headers: dict[str, str], id: str) -> None:
    found = taken(ScaleNodePool, SCALE, {"targetNodes": 5}, headers)

    assert found == envelope_of(ScaleNodePool).model_construct(
        id=id,
        type="ScaleNodePool",
        source="unknown",
        subject="acme/prod/train",
        correlationid=id,
        data=ScaleNodePool(org="acme", cluster="prod", pool="train", target_nodes=5),
    )


def test_a_bare_manifest_is_a_command_as_it_stands() -> None:
    found = taken(ApplyNodePool, APPLY, MANIFEST)

    assert isinstance(found, Envelope)
    assert found.data == ApplyNodePool(
        org="acme",
        cluster="prod",
        pool="train",
        metadata=ManifestMetadata(name="train"),
        spec=NodePoolSpec(instance_type="gd-8xh100ib-i128", target_nodes=3),
    )


def test_the_status_of_a_manifest_is_taken_and_not_said_again() -> None:
    found = taken(ApplyNodePool, APPLY, {**MANIFEST, "status": {"currentNodes": 3}})

    assert isinstance(found, Envelope)
    assert "status" not in json.loads(found.encode())["data"]


def test_an_id_that_is_no_text_is_replaced_by_what_there_is() -> None:
    content = {"specversion": "1.0", "id": 5, "source": [], "data": {"targetNodes": 5}}

    found = taken(ScaleNodePool, SCALE, content, {"ce-id": "c4"})

    assert isinstance(found, Envelope)
    assert (found.id, found.source) == ("c4", "unknown")


def test_a_refused_command_keeps_the_id_that_its_sender_waits_for() -> None:
    content = {"specversion": "1.0", "id": "c5", "data": {"targetNodes": -1}}

    found = taken(ScaleNodePool, SCALE, content)

    assert found == Unreadable(
        address=Address("cmd", "", ("acme", "prod", "train"), "ScaleNodePool"),
        id="c5",
        field="targetNodes",
        cause="input should be greater than or equal to 0",
        correlationid="c5",
    )


# Entitlement is decided by subject.


@pytest.mark.parametrize(
    ("identity", "field"),
    [({"org": "other"}, "org"), ({"cluster": "other"}, "cluster"), ({"pool": "other"}, "pool")],
)
def test_identity_in_the_content_that_differs_from_the_subject_is_refused(
    identity: dict[str, str], field: str
) -> None:
    found = fault(ScaleNodePool, SCALE, {"targetNodes": 5, **identity})

    assert found == (field, "differs from the subject it was sent on")


def test_identity_in_the_content_that_equals_the_subject_is_taken() -> None:
    of = {"org": "acme", "cluster": "prod", "pool": "train"}

    assert isinstance(taken(ScaleNodePool, SCALE, {"targetNodes": 5, **of}), Envelope)


def test_an_organisation_cannot_command_the_fleet_from_its_own_subject() -> None:
    subject = "np.cmd.acme.US-EAST-02A.g3779b1.BreakMachine"

    found = fault(BreakMachine, subject, {"fault": "boot"})

    assert found == (
        "",
        "this belongs on the subject np.cmd.fleet.US-EAST-02A.g3779b1.BreakMachine",
    )


def test_a_command_is_taken_from_the_one_subject_that_is_its_own() -> None:
    quota = {"zone": "US-EAST-02A", "instanceType": "x", "limit": 8}

    found = fault(SetQuota, "np.cmd.acme.prod.train.SetQuota", quota)

    assert found == ("", "this belongs on the subject np.cmd.acme._._.SetQuota")
    assert isinstance(taken(SetQuota, "np.cmd.acme._._.SetQuota", quota), Envelope)


# Subjects.


def test_a_dot_in_a_name_is_a_tilde_in_its_token() -> None:
    message = ScaleNodePool(org="acme", cluster="prod", pool="train.v1.x", target_nodes=5)

    subject = subject_of(message, "")

    assert token("train.v1.x") == "train~v1~x"
    assert subject == "np.cmd.acme.prod.train~v1~x.ScaleNodePool"
    assert address_of(subject) == Address(
        "cmd", "", ("acme", "prod", "train.v1.x"), "ScaleNodePool"
    )
    found = taken(ScaleNodePool, subject, {"targetNodes": 5})
    assert isinstance(found, Envelope)
    assert found.data == message


def test_an_event_names_its_service_in_its_subject() -> None:
    message = MachineAdded(zone="US-EAST-02A", machine="g3779b1", instance_type="x")

    subject = subject_of(message, "fleet")

    assert subject == "np.evt.fleet.fleet.US-EAST-02A.g3779b1.MachineAdded"
    assert address_of(subject) == Address(
        "evt", "fleet", ("fleet", "US-EAST-02A", "g3779b1"), "MachineAdded"
    )


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "np",
        "np.commit.quota",
        "np.dead.quota",
        "np.cmd.acme.prod.train",
        "np.cmd.acme.prod.train.x.ScaleNodePool",
        "np.evt.acme.prod.train.QuotaChecked",
        "np.evt.quota.acme.prod.train.x.QuotaChecked",
        "other.cmd.acme.prod.train.ScaleNodePool",
    ],
)
def test_any_other_subject_has_no_address(subject: str) -> None:
    assert address_of(subject) is None
    with pytest.raises(ValueError, match="is no message subject"):
        decode(ScaleNodePool, subject, b"{}", {}, 1)


def test_every_sample_lies_on_a_subject_that_its_filter_catches() -> None:
    for sample in recorded():
        subject = str(sample["subject"])
        address = address_of(subject)
        assert address is not None
        kind = known(Message)[address.name]
        pattern = filter_of(kind).split(".")

        tokens = subject.split(".")

        assert len(tokens) == len(pattern)
        assert all(want in ("*", have) for want, have in zip(pattern, tokens, strict=True))


def test_identity_reads_the_same_from_subject_and_message() -> None:
    for sample in SAMPLES:
        address = address_of(subject_of(sample, "x"))

        assert address is not None
        assert address.path == sample.path
        assert "/".join(address.path) == "{org}/{cluster}/{pool}".format(**path_fields(sample))


def test_only_commands_and_events_have_a_filter_and_an_identity() -> None:
    class Neither(Message):
        pass

    with pytest.raises(TypeError, match="Neither is neither command nor event"):
        filter_of(Neither)
    with pytest.raises(TypeError, match="Neither has no identity on the bus"):
        _ = Neither().path


def test_the_members_of_a_union_are_the_messages_in_it() -> None:
    assert list(members(Wake | CWNodeDeleted)) == [Wake, CWNodeDeleted]
    assert list(members(Wake)) == [Wake]
    assert list(members(None)) == []
    assert list(members(int | str)) == []


# Faults are told as a field and a sentence.


@pytest.mark.parametrize(
    ("spec", "field", "cause"),
    [
        pytest.param({"targetNodes": None}, "targetNodes", "input should be a valid integer"),
        pytest.param({"targetNodes": "5"}, "targetNodes", "input should be a valid integer"),
        pytest.param({"targetNodes": True}, "targetNodes", "input should be a valid integer"),
        pytest.param({"targetNodes": 5.0}, "targetNodes", "input should be a valid integer"),
        pytest.param(
            {"targetNodes": -1}, "targetNodes", "input should be greater than or equal to 0"
        ),
        pytest.param(
            {"targetNodes": 10**30},
            "targetNodes",
            "input should be less than or equal to 1000000",
        ),
        pytest.param({"autoscaling": 1}, "autoscaling", "input should be a valid boolean"),
        pytest.param({"autoscaling": "yes"}, "autoscaling", "input should be a valid boolean"),
        pytest.param({"instanceType": 8}, "instanceType", "input should be a valid string"),
        pytest.param(
            {"instanceType": ""}, "instanceType", "string should have at least 1 character"
        ),
        pytest.param(
            {"instanceType": "x" * 64}, "instanceType", "string should have at most 63 characters"
        ),
        pytest.param(
            {"computeClass": "Default"}, "computeClass", "input should be 'default' or 'spot'"
        ),
        pytest.param(
            {"image": {"releaseTrain": "edge"}},
            "image.releaseTrain",
            "input should be 'stable' or 'latest'",
        ),
        pytest.param(
            {"lifecycle": {"scaleDownStrategy": "idleonly"}},
            "lifecycle.scaleDownStrategy",
            "input should be 'IdleOnly' or 'PreferIdle'",
        ),
        pytest.param({"image": 3}, "image", "input should be an object"),
        pytest.param({"nodeTaints": {}}, "nodeTaints", "input should be a valid array"),
        pytest.param(
            {"nodeTaints": [{"key": "a", "effect": "NoExecute"}, {"key": "a"}]},
            "nodeTaints[1].effect",
            "is required",
        ),
        pytest.param({"nodeLabels": []}, "nodeLabels", "input should be an object"),
        pytest.param({"nodeLabels": {"a": 1}}, "nodeLabels.a", "input should be a valid string"),
        pytest.param(
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
            f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
            "tuple should have at least 1 item after validation, not 0",
        ),
        pytest.param(
            {
                "affinity": {
                    "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": []}]}}
                }
            },
            f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchFields",
            "matchFields is not supported, only matchExpressions is",
        ),
    ],
)
def test_a_fault_in_a_spec_is_told_by_field_and_sentence(
    spec: dict[str, object], field: str, cause: str
) -> None:
    manifest = {**MANIFEST, "spec": {"instanceType": "x", "targetNodes": 3, **spec}}

    assert fault(ApplyNodePool, APPLY, manifest) == (f"spec.{field}", cause)


@pytest.mark.parametrize(
    ("manifest", "field", "cause"),
    [
        pytest.param({}, "metadata", "is required", id="nothing"),
        pytest.param(
            {**MANIFEST, "kind": "Pod"}, "kind", "input should be 'NodePool'", id="another kind"
        ),
        pytest.param(
            {**MANIFEST, "apiVersion": "v1"},
            "apiVersion",
            "input should be 'compute.coreweave.com/v1alpha1'",
            id="another version",
        ),
        pytest.param(
            {**MANIFEST, "metadata": {"name": "train", "resourceVersion": 41}},
            "metadata.resourceVersion",
            "input should be a valid string",
            id="a version that is no text",
        ),
        pytest.param(
            {**MANIFEST, "spec": {"targetNodes": 3}},
            "spec.instanceType",
            "is required",
            id="no instance type",
        ),
        pytest.param(
            {**MANIFEST, "spec": {"instanceType": "x"}},
            "spec.targetNodes",
            "is required",
            id="no target",
        ),
    ],
)
def test_a_fault_in_a_manifest_is_told_by_field_and_sentence(
    manifest: object, field: str, cause: str
) -> None:
    assert fault(ApplyNodePool, APPLY, manifest) == (field, cause)


@pytest.mark.parametrize("seconds", [b"NaN", b"Infinity", b"1e400", b"-1"])
def test_a_duration_is_a_number_within_its_bounds(seconds: bytes) -> None:
    content = b'{"instanceType":"x","count":1,"bootSeconds":' + seconds + b"}"

    found = taken(AddMachines, "np.cmd.fleet.US-EAST-02A._.AddMachines", content)

    assert isinstance(found, Unreadable)
    assert found.field == "bootSeconds"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="half an object"),
        pytest.param(b"targetNodes: 3", id="YAML"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b'{"targetNodes":"\\ud800"}', id="half a character"),
        pytest.param(b"[" * 100_000, id="too deep"),
    ],
)
def test_content_that_is_no_json_is_refused_with_the_place(content: bytes) -> None:
    field, cause = fault(ScaleNodePool, SCALE, content)

    assert field == ""
    assert cause.startswith("the content is not JSON: ")
    assert " at line 1 column " in cause


@pytest.mark.parametrize("content", [[], 5, None, "x", [{"targetNodes": 5}]])
def test_content_that_is_no_object_is_refused(content: object) -> None:
    assert fault(ScaleNodePool, SCALE, content) == ("", "the content is not a JSON object")


def test_the_data_of_a_cloudevent_must_be_an_object() -> None:
    content = {"specversion": "1.0", "data": [5]}

    assert fault(ScaleNodePool, SCALE, content) == ("", "input should be an object")
    assert fault(ScaleNodePool, SCALE, {"specversion": "1.0"}) == ("targetNodes", "is required")


def test_an_event_that_cannot_be_read_is_told_by_field_and_position() -> None:
    subject = "np.evt.clock.quota._._.Wake"
    envelope = {"id": "1", "type": "Wake", "source": "clock", "data": {"service": "quota"}}

    broken = decode(Wake, subject, b"{", {}, 7)
    lacking = decode(Wake, subject, json.dumps(envelope).encode(), {}, 7)

    address = Address("evt", "clock", ("quota", "_", "_"), "Wake")
    assert lacking == Unreadable(address, "7", "data.due", "is required")
    assert isinstance(broken, Unreadable)
    assert (broken.field, broken.cause[:24]) == ("", "the content is not JSON:")


def test_the_first_of_several_faults_is_told() -> None:
    with pytest.raises(ValidationError) as caught:
        RegisterCluster.model_validate({"org": 1, "cluster": 2, "zone": 3})

    assert explain(caught.value) == ("org", "input should be a valid string")


# Values.


def test_the_capital_spelling_of_the_spot_class_is_stored_small() -> None:
    found = taken(
        ApplyNodePool,
        APPLY,
        {
            **MANIFEST,
            "spec": {"instanceType": "x", "targetNodes": 3, "computeClass": "Spot"},
        },
    )

    assert isinstance(found, Envelope)
    assert isinstance(found.data, ApplyNodePool)
    assert found.data.spec.compute_class is ComputeClass.SPOT
    assert json.loads(found.encode())["data"]["spec"]["computeClass"] == "spot"


def test_moments_keep_their_zone_and_their_fraction() -> None:
    moment = datetime(2026, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC)
    wake = envelope_of(Wake).model_construct(
        id="1", type="Wake", source="clock", data=Wake(service="quota", due=moment)
    )

    found = decode(Wake, "np.evt.clock.quota._._.Wake", wake.encode(), {}, 7)

    assert isinstance(found, Envelope)
    assert found.data == Wake(service="quota", due=moment)


def test_a_message_never_changes() -> None:
    wish = next(sample for sample in SAMPLES if isinstance(sample, NodePoolValidated))

    with pytest.raises(ValidationError, match="frozen"):
        wish.generation = 3  # type: ignore[misc]  # what the test is about
