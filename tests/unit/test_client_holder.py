"""Whose credentials a client uses, and how it works with them."""

from pathlib import Path

import pytest

from nodepool.cli.settings import from_environment
from nodepool.client import Client, Refused
from nodepool.client.holder import Holder, holder_of
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.credentials import new_seed


def credentials(folder: Path, comment: str) -> Access:
    """The access with a credentials file that begins with this line."""
    path = folder / "user.nk"
    path.write_text(f"{comment}\n# inbox prefix: _INBOX_alice\n{new_seed()}\n")
    return Access(nkey_file=str(path))


@pytest.mark.parametrize(
    ("comment", "holder"),
    [
        ("# acme/alice, editor", Holder("acme", "alice", "editor")),
        ("#acme/agent-prod, agent of prod", Holder("acme", "agent-prod", "agent")),
        ("# operator, platform", None),
        ("# acme/alice", None),
        ("# acme/alice, emperor", None),
        ("# acme/alice, editors", None),
        ("# made for alice", None),
    ],
)
def test_a_comment_says_whose_credentials_these_are(
    tmp_path: Path, comment: str, holder: Holder | None
) -> None:
    assert holder_of(credentials(tmp_path, comment)) == holder


def test_a_user_of_an_organisation_works_through_the_gateway_and_others_with_the_bus(
    tmp_path: Path,
) -> None:
    access = credentials(tmp_path, "# acme/alice, editor")

    assert Client(org="acme", access=access).session.through == "gateway"
    assert Client(org="acme", access=access, through="bus").session.through == "bus"
    assert Client(org="acme", through="gateway").session.through == "gateway"
    assert Client(org="acme").session.through == "bus"
    assert Client(access=Access(nkey_file=str(tmp_path / "none"))).session.through == "bus"


def test_a_user_of_an_organisation_is_told_that_another_one_cannot_be_seen(tmp_path: Path) -> None:
    access = credentials(tmp_path, "# acme/alice, editor")

    with pytest.raises(Refused, match=r"org: the credentials are those of acme/alice .editor."):
        Client(org="umbra", access=access)


def test_the_command_line_works_for_the_organisation_of_the_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nacl", reason="needs the package PyNaCl")
    path = credentials(tmp_path, "# acme/alice, editor").nkey_file

    assert from_environment({"NODEPOOL_NKEY_FILE": path}).org == "acme"
    assert from_environment({"NODEPOOL_NKEY_FILE": path, "NODEPOOL_ORG": "other"}).org == "other"
    assert from_environment({}).org == "demo"


def test_how_to_work_can_be_set(tmp_path: Path) -> None:
    assert from_environment({}).through is None
    assert from_environment({"NODEPOOL_THROUGH": "gateway"}).through == "gateway"
    assert from_environment({"NODEPOOL_THROUGH": "bus"}).through == "bus"
    with pytest.raises(Exception, match="NODEPOOL_THROUGH: 'door' must be 'bus' or 'gateway'"):
        from_environment({"NODEPOOL_THROUGH": "door"})
