import json

from contracts.golden import line, missing_lines, read_recorded, seal
from contracts.samples import NOON, SAMPLES, message_classes
from nodepool.contract.decode import Unreadable, decode
from nodepool.contract.messages import Envelope, Event, Message
from nodepool.contract.subjects import address_of, filters_of


def read(subject: object, content: object) -> Envelope[Message] | Unreadable:
    """What a subject and its content decode to today."""
    address = address_of(str(subject))
    assert address is not None
    kind = message_classes()[address.name]
    return decode(kind, str(subject), json.dumps(content).encode(), {}, 99)


# Whatever was recorded once can be read for ever, with the same meaning.


def test_every_message_class_has_a_golden_sample() -> None:
    names = {str(sample["subject"]).rsplit(".", 1)[1] for sample in read_recorded()}

    assert list(missing_lines()) == [], "run `make golden`"
    assert names == set(message_classes()), (
        "a class without a value in samples.py, or one taken away"
    )


def test_every_golden_sample_decodes_to_the_recorded_value_for_ever() -> None:
    samples = read_recorded()

    assert len(samples) == len(SAMPLES)
    for number, (sample, expected) in enumerate(zip(samples, SAMPLES, strict=True), 1):
        envelope = read(sample["subject"], sample["content"])

        assert isinstance(envelope, Envelope), f"line {number}: {envelope}"
        assert envelope.data == expected, f"line {number} decodes to another value"


def test_an_envelope_keeps_what_links_it_to_its_cause() -> None:
    for sample in read_recorded():
        envelope = read(sample["subject"], sample["content"])

        assert isinstance(envelope, Envelope)
        if isinstance(envelope.data, Event):
            assert envelope.model_dump(exclude={"data", "source", "subject", "type"}) == {
                "specversion": "1.0",
                "id": "41.validator.0",
                "time": NOON,
                "datacontenttype": "application/json",
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "tracestate": None,
                "correlationid": "c1",
                "causationid": "40",
                "causeposition": 41,
                "actor": None,
            }


def test_nothing_recorded_is_renamed_or_left_out_today() -> None:
    for number, (sample, value) in enumerate(zip(read_recorded(), SAMPLES, strict=True), 1):
        today = json.loads(line(value, ""))

        assert today["subject"] == sample["subject"], f"line {number} has another subject"
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
    for number, sample in enumerate(read_recorded(), 1):
        name = str(sample["subject"]).rsplit(".", 1)[1]

        expected = seal(before, sample["subject"], sample["content"])

        assert sample["seal"] == expected, (
            f"line {number} of golden.jsonl ({name}), or one before it, is not as it was recorded:"
            " put it back, and record a new form of a message at the end"
        )
        before = expected


# Readers ignore unknown fields, so that events can get new ones.


def test_an_unknown_field_of_an_event_is_ignored_wherever_it_is() -> None:
    for sample in read_recorded():
        content = sample["content"]
        assert isinstance(content, dict)
        if not str(sample["subject"]).startswith("np.evt."):
            continue
        more = {**content, "later": 1, "data": _with_more(content["data"])}

        assert read(sample["subject"], more) == read(sample["subject"], content)


def _with_more(data: object) -> object:
    """The data of an event as a later release may write it: a field more in each object.

    Labels and annotations, whose keys are chosen by users, stay as they are, and so do an affinity,
    which is the user's own document, and faults by their kind.
    """
    match data:
        case dict():
            free = ("labels", "annotations", "nodeLabels", "nodeAnnotations", "affinity", "faults")
            fields = {k: v if k in free else _with_more(v) for k, v in data.items()}
            return {**fields, "laterField": {"a": 1}}
        case list():
            return [_with_more(item) for item in data]
    return data


def test_every_sample_lies_on_a_subject_that_its_filter_catches() -> None:
    for sample in read_recorded():
        subject = str(sample["subject"])
        address = address_of(subject)
        assert address is not None
        kind = message_classes()[address.name]
        patterns = [filter.split(".") for filter in filters_of(kind)]

        tokens = subject.split(".")

        assert {len(tokens)} == {len(pattern) for pattern in patterns}
        assert any(
            all(want in ("*", have) for want, have in zip(pattern, tokens, strict=True))
            for pattern in patterns
        )
