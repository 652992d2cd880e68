import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.samples import SAMPLES, sample
from nodepool.contract.commands import (
    AddMachines,
    ApplyNodePool,
    BreakMachine,
    RegisterCluster,
    ScaleNodePool,
    SetQuota,
)
from nodepool.contract.decode import (
    Unreadable,
    decode,
    explain,
    unknown_command,
)
from nodepool.contract.events import CommandRefused, CWNodeAssigned, Wake
from nodepool.contract.keys import TOKEN_MAX
from nodepool.contract.messages import ID_MAX, Envelope, Event, Message, envelope_of
from nodepool.contract.model import ComputeClass, ManifestMetadata, NodePoolSpec
from nodepool.contract.opening import COMMAND_BYTES_MAX
from nodepool.contract.subjects import Address, address_of, subject_of
from nodepool.contract.tracing import TRACE_MAX
from nodepool.engine.failures import refusal, unreadable

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SCALE = "np.cmd.acme.prod.train.ScaleNodePool"
APPLY = "np.cmd.acme.prod.train.ApplyNodePool"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MANIFEST: Mapping[str, object] = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train"},
    "spec": {"instanceType": "gd-8xh100ib-i128", "targetNodes": 3},
}


def decoded(
    kind: type[Message], subject: str, content: object, headers: Mapping[str, str] | None = None
) -> Envelope[Message] | Unreadable:
    """A command that was sent with this content, as JSON or as bytes, and stored at position 7."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return decode(kind, subject, body, dict(headers or {}), 7)


def fault(kind: type[Message], subject: str, content: object) -> tuple[str, str]:
    """The field and the cause for which a command is refused."""
    result = decoded(kind, subject, content)
    assert isinstance(result, Unreadable), f"decoded to {result!r}"
    return result.field, result.cause


# Writers of commands are refused for unknown fields.


@pytest.mark.parametrize(
    ("content", "field"),
    [
        pytest.param({"targetNodes": 3, "later": 1}, "later", id="at the top"),
        pytest.param({"target_nodes": 3}, "target_nodes", id="the Python name of a field"),
    ],
)
def test_an_unknown_field_of_a_command_is_refused_by_its_name(content: object, field: str) -> None:
    assert fault(ScaleNodePool, SCALE, content)[0] == field


@pytest.mark.parametrize(
    ("spec", "field", "meant"),
    [
        ({"targetnodes": 1}, "spec.targetnodes", "targetNodes"),
        ({"image": {"tag": "x"}}, "spec.image.tag", None),
        (
            {"lifecycle": {"scaledownstrategy": "IdleOnly"}},
            "spec.lifecycle.scaledownstrategy",
            "scaleDownStrategy",
        ),
        (
            {"nodeTaints": [{"key": "a", "effect": "NoSchedule", "x": 1}]},
            "spec.nodeTaints[0].x",
            None,
        ),
        ({"affinity": {"podAffinity": {}}}, "spec.affinity.podAffinity", "nodeAffinity"),
    ],
)
def test_an_unknown_field_deep_in_a_manifest_is_refused_by_its_path(
    spec: dict[str, object], field: str, meant: str | None
) -> None:
    manifest = {**MANIFEST, "spec": {"instanceType": "x", "targetNodes": 3, **spec}}

    hint = f"; did you mean {meant}?" if meant else ""
    assert fault(ApplyNodePool, APPLY, manifest) == (field, f"is not a known field{hint}")


# Three ways to send a command.


def test_a_structured_cloudevent_is_a_command_with_its_own_id_and_trace() -> None:
    content = {
        "specversion": "1.0",
        "id": "c1",
        "type": "ScaleNodePool",
        "source": "me",
        "traceparent": TRACEPARENT,
        "anextension": "x",
        "data": {"targetNodes": 5},
    }

    result = decoded(ScaleNodePool, SCALE, content, {"Nats-Msg-Id": "other", "ce-id": "another"})

    assert result == envelope_of(ScaleNodePool).model_construct(
        id="c1",
        type="ScaleNodePool",
        source="me",
        subject="acme/prod/train",
        traceparent=TRACEPARENT,
        correlationid="c1",
        data=ScaleNodePool(org="acme", cluster="prod", pool="train", target_nodes=5),
    )


def test_a_binary_cloudevent_is_a_command_whose_attributes_are_headers() -> None:
    headers = {"CE-Id": "c2", "ce-source": "me", "TraceParent": TRACEPARENT}
    headers |= {"ce-type": "ScaleNodePool"}

    result = decoded(ScaleNodePool, SCALE, {"targetNodes": 5}, headers)

    assert result == envelope_of(ScaleNodePool).model_construct(
        id="c2",
        type="ScaleNodePool",
        source="me",
        subject="acme/prod/train",
        traceparent=TRACEPARENT,
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
def test_bare_json_is_a_command_whose_id_is_a_header_or_its_position(
    headers: dict[str, str], id: str
) -> None:
    result = decoded(ScaleNodePool, SCALE, {"targetNodes": 5}, headers)

    assert result == envelope_of(ScaleNodePool).model_construct(
        id=id,
        type="ScaleNodePool",
        source="unknown",
        subject="acme/prod/train",
        correlationid=id,
        data=ScaleNodePool(org="acme", cluster="prod", pool="train", target_nodes=5),
    )


def test_a_bare_manifest_is_a_command_as_it_stands() -> None:
    result = decoded(ApplyNodePool, APPLY, MANIFEST)

    assert isinstance(result, Envelope)
    assert result.data == ApplyNodePool(
        org="acme",
        cluster="prod",
        pool="train",
        metadata=ManifestMetadata(name="train"),
        spec=NodePoolSpec(instance_type="gd-8xh100ib-i128", target_nodes=3),
    )


def test_the_status_of_a_manifest_is_accepted_and_not_passed_on() -> None:
    result = decoded(ApplyNodePool, APPLY, {**MANIFEST, "status": {"currentNodes": 3}})

    assert isinstance(result, Envelope)
    assert "status" not in json.loads(result.encode())["data"]


def test_an_id_that_is_no_text_is_replaced_by_a_header() -> None:
    content = {"specversion": "1.0", "id": 5, "source": [], "data": {"targetNodes": 5}}

    result = decoded(ScaleNodePool, SCALE, content, {"ce-id": "c4"})

    assert isinstance(result, Envelope)
    assert (result.id, result.source) == ("c4", "unknown")


def test_a_refused_command_keeps_the_id_that_its_sender_waits_for() -> None:
    content = {"specversion": "1.0", "id": "c5", "data": {"targetNodes": -1}}

    result = decoded(ScaleNodePool, SCALE, content)

    assert result == Unreadable(
        address=Address("cmd", "", ("acme", "prod", "train"), "ScaleNodePool"),
        id="c5",
        field="targetNodes",
        cause="input should be greater than or equal to 0",
        correlationid="c5",
    )


# What a sender may do is decided by subject.


@pytest.mark.parametrize(
    ("identity", "field"),
    [({"org": "other"}, "org"), ({"cluster": "other"}, "cluster"), ({"pool": "other"}, "pool")],
)
def test_identity_in_the_content_that_differs_from_the_subject_is_refused(
    identity: dict[str, str], field: str
) -> None:
    refusal = fault(ScaleNodePool, SCALE, {"targetNodes": 5, **identity})

    assert refusal == (field, "differs from the subject it was sent on")


def test_identity_in_the_content_that_equals_the_subject_is_accepted() -> None:
    of = {"org": "acme", "cluster": "prod", "pool": "train"}

    assert isinstance(decoded(ScaleNodePool, SCALE, {"targetNodes": 5, **of}), Envelope)


def test_a_tilde_in_the_subject_is_a_dot_in_the_name() -> None:
    subject = "np.cmd.acme.prod.train~v1~x.ScaleNodePool"

    result = decoded(ScaleNodePool, subject, {"targetNodes": 5})

    assert isinstance(result, Envelope)
    assert result.data == ScaleNodePool(
        org="acme", cluster="prod", pool="train.v1.x", target_nodes=5
    )


def test_an_organisation_cannot_command_the_fleet_from_its_own_subject() -> None:
    subject = "np.cmd.acme.US-EAST-02A.g3779b1.BreakMachine"

    refusal = fault(BreakMachine, subject, {"fault": "boot"})

    assert refusal == (
        "",
        "this belongs on the subject np.cmd.fleet.US-EAST-02A.g3779b1.BreakMachine",
    )


def test_a_command_is_accepted_on_the_one_subject_that_is_its_own() -> None:
    quota = {"zone": "US-EAST-02A", "instanceType": "x", "limit": 8}

    refusal = fault(SetQuota, "np.cmd.acme.prod.train.SetQuota", quota)

    assert refusal == ("", "this belongs on the subject np.cmd.acme._._.SetQuota")
    assert isinstance(decoded(SetQuota, "np.cmd.acme._._.SetQuota", quota), Envelope)


# A fault is a field and a sentence.


@pytest.mark.parametrize(
    ("spec", "field", "cause"),
    [
        pytest.param({"targetNodes": None}, "targetNodes", "is required"),
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
def test_a_fault_in_a_spec_is_refused_with_its_field_and_a_sentence(
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
def test_a_fault_in_a_manifest_is_refused_with_its_field_and_a_sentence(
    manifest: object, field: str, cause: str
) -> None:
    assert fault(ApplyNodePool, APPLY, manifest) == (field, cause)


@pytest.mark.parametrize("seconds", [b"NaN", b"Infinity", b"1e400", b"-1"])
def test_a_duration_is_a_number_within_its_bounds(seconds: bytes) -> None:
    content = b'{"instanceType":"x","count":1,"bootSeconds":' + seconds + b"}"

    result = decoded(AddMachines, "np.cmd.fleet.US-EAST-02A._.AddMachines", content)

    assert isinstance(result, Unreadable)
    assert result.field == "bootSeconds"


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


def test_an_event_that_cannot_be_read_has_a_field_a_cause_and_its_position() -> None:
    subject = "np.evt.clock.quota._._.Wake"
    envelope = {"id": "1", "type": "Wake", "source": "clock", "data": {"service": "quota"}}

    broken = decode(Wake, subject, b"{", {}, 7)
    lacking = decode(Wake, subject, json.dumps(envelope).encode(), {}, 7)

    address = Address("evt", "clock", ("quota", "_", "_"), "Wake")
    assert lacking == Unreadable(address, "7", "data.due", "is required")
    assert isinstance(broken, Unreadable)
    assert (broken.field, broken.cause[:24]) == ("", "the content is not JSON:")


def test_the_first_of_several_faults_is_explained() -> None:
    with pytest.raises(ValidationError) as caught:
        RegisterCluster.model_validate({"org": 1, "cluster": 2, "zone": 3})

    assert explain(caught.value) == ("org", "input should be a valid string")


# Values.


def test_the_capital_spelling_of_the_spot_class_is_stored_small() -> None:
    result = decoded(
        ApplyNodePool,
        APPLY,
        {
            **MANIFEST,
            "spec": {"instanceType": "x", "targetNodes": 3, "computeClass": "Spot"},
        },
    )

    assert isinstance(result, Envelope)
    assert isinstance(result.data, ApplyNodePool)
    assert result.data.spec.compute_class is ComputeClass.SPOT
    assert json.loads(result.encode())["data"]["spec"]["computeClass"] == "spot"


# A command of an unknown name is refused, under the id that its sender waits for.


@pytest.mark.parametrize(
    ("content", "id"),
    [
        pytest.param({"specversion": "1.0", "id": "c6", "data": {}}, "c6", id="its own id"),
        pytest.param({}, "h1", id="the header"),
        pytest.param([], "h1", id="the header, although it is no object"),
    ],
)
def test_a_command_of_an_unknown_name_is_refused_with_its_id(content: object, id: str) -> None:
    subject = "np.cmd.acme.prod.train.PaintNodePool"

    result = unknown_command(subject, json.dumps(content).encode(), {"Nats-Msg-Id": "h1"}, 7)

    assert result == Unreadable(
        address=Address("cmd", "", ("acme", "prod", "train"), "PaintNodePool"),
        id=id,
        field="type",
        cause="PaintNodePool is no command: see the last part of the subject",
        correlationid=id,
    )


# What is passed on from a command is bounded.


def test_a_command_that_is_too_large_is_refused() -> None:
    content = json.dumps({"targetNodes": 5, "resourceVersion": "x" * COMMAND_BYTES_MAX}).encode()

    assert fault(ScaleNodePool, SCALE, content) == (
        "",
        f"the command has {len(content)} bytes; at most 262144 are taken",
    )


def test_a_command_whose_id_is_too_long_is_refused() -> None:
    content = {"specversion": "1.0", "id": "x" * (ID_MAX + 1), "data": {"targetNodes": 5}}

    assert fault(ScaleNodePool, SCALE, content) == (
        "",
        "the id has 257 characters; at most 256 are taken",
    )


@pytest.mark.parametrize(
    ("sent", "passed_on"),
    [
        pytest.param(TRACEPARENT, TRACEPARENT, id="as it came"),
        pytest.param(TRACEPARENT[:-2] + "00", TRACEPARENT[:-2] + "00", id="not sampled"),
        pytest.param("01" + TRACEPARENT[2:] + "-x", TRACEPARENT, id="of a later version"),
        pytest.param(TRACEPARENT + "-x", None, id="longer than its version"),
        pytest.param(TRACEPARENT.upper(), None, id="in capitals"),
        pytest.param("ff" + TRACEPARENT[2:], None, id="of the version that there never is"),
        pytest.param(f"00-{'0' * 32}{TRACEPARENT[35:]}", None, id="without a trace"),
        pytest.param(f"{TRACEPARENT[:36]}{'0' * 16}-01", None, id="without a span"),
        pytest.param("nonsense", None, id="malformed"),
        pytest.param(7, None, id="no text"),
    ],
)
def test_a_trace_is_passed_on_if_the_standard_has_it_so(sent: object, passed_on: object) -> None:
    trace = {"traceparent": sent, "tracestate": "vendor=x"}
    content = {"specversion": "1.0", "id": "c1", **trace, "data": {"targetNodes": 5}}

    result = decoded(ScaleNodePool, SCALE, content)

    assert isinstance(result, Envelope)
    assert result.traceparent == passed_on
    assert result.tracestate == (None if passed_on is None else "vendor=x")


def test_headers_that_are_too_long_are_not_used() -> None:
    headers = {"Nats-Msg-Id": "x" * (ID_MAX + 1), "traceparent": "x" * (TRACE_MAX + 1)}

    result = decoded(ScaleNodePool, SCALE, {"targetNodes": 5}, headers)

    assert isinstance(result, Envelope)
    assert (result.id, result.traceparent) == ("7", None)


# A message is believed on the subject of its own type and identity only.


ASSIGNED = sample(CWNodeAssigned, org="acme", cluster="prod", pool="train.v1")
ON_ITS_SUBJECT = subject_of(ASSIGNED, "allocator")


def event(message: Message, **attributes: object) -> bytes:
    """An event in an envelope with these attributes."""
    envelope = envelope_of(type(message)).model_construct(
        id="1", type=type(message).__name__, source="x", data=message
    )
    return envelope.model_copy(update=attributes).encode()


@pytest.mark.parametrize("message", [each for each in SAMPLES if isinstance(each, Event)])
def test_an_event_is_read_on_its_own_subject(message: Event) -> None:
    result = decode(type(message), subject_of(message, message.speaker), event(message), {}, 7)

    assert isinstance(result, Envelope)
    assert result.data == message


@pytest.mark.parametrize(
    ("subject", "content", "field"),
    [
        pytest.param(ON_ITS_SUBJECT, event(ASSIGNED, type="x"), "type", id="another type"),
        pytest.param(ON_ITS_SUBJECT, event(ASSIGNED, id="x" * 257), "id", id="too long an id"),
        pytest.param(
            ON_ITS_SUBJECT,
            event(ASSIGNED, correlationid="x" * 257),
            "correlationid",
            id="too long an id of its command",
        ),
        pytest.param(
            ON_ITS_SUBJECT,
            event(ASSIGNED, traceparent="x" * 65),
            "traceparent",
            id="too long a trace",
        ),
        *(
            pytest.param(
                f"np.evt.allocator.{path}.CWNodeAssigned", event(ASSIGNED), "data", id=f"on {path}"
            )
            for path in ("evil.prod.train~v1", "acme.evil.train~v1", "acme.prod.train", "a.b.c")
        ),
        pytest.param(
            "np.evt.allocator.acme.prod.train~v1.CWNodeAssigned",
            event(ASSIGNED.model_copy(update={"pool": "train~v1"})),
            "data",
            id="a token in place of the name that it stands for",
        ),
        pytest.param(
            "np.evt.allocator.b.c.d.CWNodeAssigned",
            event(ASSIGNED.model_copy(update={"org": "b.c", "cluster": "d", "pool": ""})),
            "data",
            id="a name across tokens",
        ),
        pytest.param(
            f"np.evt.allocator.acme.prod.{'x' * 255}.CWNodeAssigned",
            event(ASSIGNED.model_copy(update={"pool": "x" * 255})),
            "",
            id="too long a name",
        ),
    ],
)
def test_an_event_of_another_type_or_identity_than_its_subject_cannot_be_read(
    subject: str, content: bytes, field: str
) -> None:
    result = decode(CWNodeAssigned, subject, content, {}, 7)

    assert isinstance(result, Unreadable)
    assert result.field == field


identities = st.tuples(*[st.text("ab.~/_é", min_size=1, max_size=4)] * 3)


@given(identities, identities)
def test_an_event_is_read_where_its_identity_equals_that_of_the_subject(
    said: tuple[str, str, str], at: tuple[str, str, str]
) -> None:
    def about(path: tuple[str, str, str]) -> CWNodeAssigned:
        fields = dict(zip(("org", "cluster", "pool"), path, strict=True))
        return ASSIGNED.model_copy(update=fields)

    subject = subject_of(about(at), "allocator")
    address = address_of(subject)
    assert address is not None

    for path in (said, at):
        result = decode(CWNodeAssigned, subject, event(about(path)), {}, 7)
        assert isinstance(result, Envelope) is (path == address.path)


@pytest.mark.parametrize("type_", ["DeleteNodePool", "scalenodepool", "", None, 5, {}])
def test_a_command_of_another_type_than_its_subject_is_refused(type_: object) -> None:
    content = {"specversion": "1.0", "id": "c1", "type": type_, "data": {"targetNodes": 5}}

    assert fault(ScaleNodePool, SCALE, content) == (
        "type",
        "differs from the subject it was sent on, which is for ScaleNodePool",
    )


def test_a_command_without_a_type_is_of_that_of_its_subject() -> None:
    content = {"specversion": "1.0", "id": "c1", "data": {"targetNodes": 5}}

    assert isinstance(decoded(ScaleNodePool, SCALE, content), Envelope)


def test_a_name_as_long_as_names_may_be_is_taken() -> None:
    subject = f"np.cmd.acme.prod.{'x' * TOKEN_MAX}.ScaleNodePool"

    assert isinstance(decoded(ScaleNodePool, subject, {"targetNodes": 5}), Envelope)


def test_a_longer_name_is_refused_under_one_that_nothing_else_can_have() -> None:
    subject = f"np.cmd.{'y' * 999}.prod.{'x' * (TOKEN_MAX + 1)}.ScaleNodePool"

    result = decoded(ScaleNodePool, subject, {"targetNodes": 5})

    assert isinstance(result, Unreadable)
    assert result.cause == "a part of the subject has more than 253 characters"
    assert result.address.path == ("y" * TOKEN_MAX + "…", "prod", "x" * TOKEN_MAX + "…")


@given(st.tuples(*[st.text(min_size=1).map(lambda name: name.replace(".", ""))] * 3))
def test_the_subject_of_a_refusal_always_fits_and_its_event_can_be_read(
    path: tuple[str, str, str],
) -> None:
    path = (path[0] * 500 or "x", path[1] or "x", path[2] * 300 or "x")
    subject = ".".join(("np.cmd", *path, "MakeCoffee"))
    outcome = refusal(unreadable(unknown_command(subject, b"{}", {}, 7)))

    result = decode(CommandRefused, subject_of(outcome, "v"), event(outcome), {}, 8)

    assert len(subject_of(outcome, "validator").encode()) < 4_096
    assert isinstance(result, Envelope)
    assert result.data == outcome
