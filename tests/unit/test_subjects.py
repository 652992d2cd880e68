import pytest

from contracts.samples import SAMPLES, sample
from nodepool.contract.commands import ScaleNodePool
from nodepool.contract.decode import decode
from nodepool.contract.events import MachineAdded
from nodepool.contract.keys import token
from nodepool.contract.messages import Message, path_fields
from nodepool.contract.subjects import Address, address_of, filters_of, subject_of


def test_a_dot_in_a_name_is_a_tilde_in_its_token() -> None:
    message = sample(ScaleNodePool, pool="train.v1.x")

    subject = subject_of(message, "")

    assert token("train.v1.x") == "train~v1~x"
    assert subject == "np.cmd.acme.prod.train~v1~x.ScaleNodePool"
    assert address_of(subject) == Address("cmd", "", message.path, "ScaleNodePool")


def test_an_event_names_its_service_in_its_subject() -> None:
    subject = subject_of(sample(MachineAdded), "fleet")

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


def test_identity_reads_the_same_from_subject_and_message() -> None:
    for message in SAMPLES:
        address = address_of(subject_of(message, "x"))

        assert address is not None
        assert address.path == message.path
        assert "/".join(address.path) == "{org}/{cluster}/{pool}".format(**path_fields(message))


def test_only_commands_and_events_have_a_filter_and_an_identity() -> None:
    class Neither(Message):
        pass

    with pytest.raises(TypeError, match="Neither is neither command nor event"):
        filters_of(Neither)
    with pytest.raises(TypeError, match="Neither has no identity on the bus"):
        _ = Neither().path
