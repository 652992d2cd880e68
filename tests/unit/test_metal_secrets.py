"""No text of a controller shows a secret, or a piece of one."""

import json

import pytest

from metal.documents import error_message
from metal.host.redfish.credentials import Credential, Secrets

OLD, NEW = Credential("root", "correct  horse"), Credential("root", "new-battery-9")
PAD = "x" * 300


def knowing(*credentials: Credential) -> Secrets:
    """What a controller knows that was told these credentials, one after the other."""
    secrets = Secrets()
    for each in credentials:
        secrets.learn(each)
    return secrets


def cleaned(secrets: Secrets, document: object) -> object:
    """A document as it is read."""
    return secrets.clean(document, json.dumps(document).encode())


@pytest.mark.parametrize("before", [230, 240, 250, 255, 256])
def test_a_password_is_hidden_before_a_text_is_cut(before: int) -> None:
    told = {"error": {"message": PAD[:before] + NEW.password}}

    assert error_message(cleaned(knowing(NEW), told)) == (PAD[:before] + "***")[:256]


def test_a_password_with_spaces_is_hidden_before_the_spaces_are_joined() -> None:
    told = {"error": {"message": f"it is {OLD.password}"}}

    assert error_message(cleaned(knowing(OLD), told)) == "it is ***"


def test_a_password_that_is_written_with_escapes_is_hidden() -> None:
    content = b'{"Message": "' + PAD.encode() + b'new\\u002dbattery-9"}'

    document = knowing(NEW).clean(json.loads(content), content)

    assert document == {"Message": PAD + "***"}


def test_the_credential_and_the_token_before_the_last_ones_are_hidden() -> None:
    secrets = knowing(OLD, NEW, NEW)
    secrets.learn_token("token-1")
    secrets.learn_token("token-2")

    hidden = secrets.hide(f"{OLD.password} {NEW.password} {OLD.basic} token-1 token-2 root rooted")

    assert hidden == "*** *** Basic *** *** *** *** rooted"


def test_an_older_credential_that_comes_back_counts_as_the_last_one() -> None:
    third = Credential("root", "third-staple-7")

    secrets = knowing(OLD, NEW, OLD, third)

    assert secrets.hide(f"{OLD.password} {third.password}") == "*** ***"


def test_a_longer_secret_is_hidden_as_a_whole_although_a_shorter_one_is_a_part_of_it() -> None:
    secrets = knowing(Credential("a", "horse"), Credential("a", "horse-battery"))

    assert secrets.hide("horse-battery") == "***"


def test_links_and_short_texts_stay_as_they_are() -> None:
    secrets = knowing(Credential("root", "SN1"))
    link = "/redfish/v1/Systems/SN1/" + PAD
    document = {"SerialNumber": "SN12", "@odata.id": link, "Members": [{"Name": PAD + "SN1"}, 7]}

    assert cleaned(secrets, document) == {**document, "Members": [{"Name": PAD + "***"}, 7]}
