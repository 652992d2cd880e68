"""The accounts of a server as text: what is refused, and how a user is known."""

from collections.abc import Callable

import pytest

from nodepool.auth.accounts import Member, Organisation, Proof, User, configuration
from support.nats_users import key
from support.services import services

HASH = f"$2b$11${'a' * 53}"
BY_PASSWORD = Proof(password=HASH)


def by_key(number: int) -> Proof:
    """How the server knows the owner of a key."""
    return Proof(key("user", number).public)


@pytest.mark.parametrize(
    "make",
    [
        Proof,
        lambda: Proof(key("user").public, HASH),
        lambda: Proof(key("account").public),
        lambda: Proof(key("user").seed),
        lambda: Proof(password="secret"),
        lambda: User('x" }', BY_PASSWORD),
        lambda: User("", BY_PASSWORD),
        lambda: User("a.b", BY_PASSWORD),
        lambda: User("*", BY_PASSWORD),
        lambda: Member(User("x", BY_PASSWORD), "operator"),
        lambda: Member(User("x", BY_PASSWORD), "agent"),
        lambda: Member(User("x", BY_PASSWORD), "viewer", "prod"),
        lambda: Member(User("x", BY_PASSWORD), "agent", ">"),
        lambda: Organisation("fleet"),
        lambda: Organisation("PLATFORM"),
        lambda: Organisation("a.b"),
        lambda: Organisation("*"),
        lambda: configuration(services(), [User("stranger", BY_PASSWORD)], []),
        lambda: configuration(services(), [User("quota", BY_PASSWORD)] * 2, []),
        lambda: configuration(services(), [], [Organisation("acme"), Organisation("acme")]),
        lambda: configuration(services(), [User("quota", by_key(1)), User("fleet", by_key(1))], []),
    ],
)
def test_what_would_give_other_rights_than_it_seems_to_is_refused(
    make: Callable[[], object],
) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make()


def test_an_organisation_is_an_account_without_jetstream_that_only_imports() -> None:
    # given an organisation with a user that has a password
    acme = Organisation("acme", (Member(User("ann", BY_PASSWORD), "editor"),))

    # when the accounts are rendered
    text = configuration(services(), [User("quota", by_key(1))], [acme])

    # then its account has no JetStream and exports nothing
    account = text[text.index('  "acme" {') :]
    assert "jetstream" not in account
    assert "exports" not in account
    assert f'user: "acme.ann"\n        password: "{HASH}"' in account

    # and what the platform exports is for this organisation alone
    exports = [line for line in text.splitlines() if "accounts: [" in line]
    assert len(exports) == 4
    assert all('accounts: ["acme"]' in line and ".acme." in line for line in exports)


def test_the_cluster_of_an_agent_is_one_token_of_its_subjects() -> None:
    agent = Member(User("agent-v1", by_key(1)), "agent", "prod.v1")

    rights = agent.rights("acme")

    assert rights.may_publish("np.cmd.acme.prod~v1.train.ApplyNodePool")
    assert not rights.may_publish("np.cmd.acme.prod.v1.ApplyNodePool")
    assert rights.may_subscribe("np.evt.*.acme.prod~v1.*.*")
