"""The accounts of a server as text: what is refused, and how a user is known."""

from collections.abc import Callable

import pytest

from nodepool.auth.accounts import (
    ARCHIVER,
    OWNERS,
    PLATFORM,
    PLATFORM_USERS,
    SPEAKERS,
    Member,
    Organisation,
    Proof,
    User,
    configuration,
    platform_rights,
)
from nodepool.auth.rights import imports
from nodepool.contract.log import covers
from nodepool.contract.services import EVERY
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
        lambda: configuration(services(*EVERY), [User("stranger", BY_PASSWORD)], []),
        lambda: configuration(services(*EVERY), [User("quota", BY_PASSWORD)] * 2, []),
        lambda: configuration(services(*EVERY), [], [Organisation("acme"), Organisation("acme")]),
        lambda: configuration(
            services(*EVERY), [User("quota", by_key(1)), User("fleet", by_key(1))], []
        ),
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
    text = configuration(services(*EVERY), [User("quota", by_key(1))], [acme])

    # then its account has no JetStream and exports nothing
    account = text[text.index('  "acme" {') :]
    assert "jetstream" not in account
    assert "exports" not in account
    assert f'user: "acme.ann"\n        password: "{HASH}"' in account

    # and what it may import is about this organisation alone, and from an account without JetStream
    exports = [line for line in text.splitlines() if 'accounts: ["acme"]' in line]
    assert len(exports) == 4
    assert all(".acme." in line for line in exports)
    assert PLATFORM not in account


def test_whoever_may_read_has_no_jetstream_in_its_account() -> None:
    # given a user of each kind
    users = [User(name, by_key(number)) for number, name in enumerate(PLATFORM_USERS, 1)]

    # when the accounts are rendered
    text = configuration(services(*EVERY), users, [])

    # then those with JetStream are the operator and who makes the streams
    platform, speakers = text.split(f"  {SPEAKERS} {{")
    assert [name for name in PLATFORM_USERS if f"  # {name}\n" in platform] == [*OWNERS]
    assert "jetstream" not in speakers


def test_the_services_import_what_they_may_publish_and_nothing_that_changes_a_stream() -> None:
    # given what services, feed and gateway may publish, but for their replies
    rights = platform_rights(services(*EVERY))
    published = {
        subject
        for name, each in rights.items()
        if name not in OWNERS
        for subject in each.publish
        if not subject.startswith("_R_.")
    }

    # then imports lead all of it to JetStream, and each of them is needed
    found = {each: [s for s in published if covers(each, s)] for each in imports()}
    assert {subject for subjects in found.values() for subject in subjects} == published
    assert all(found.values())

    # and no import changes or removes anything but a consumer, and what the archiver alone trims
    verbs = {each.removeprefix("$JS.API.").partition(".*")[0] for each in found if "$JS" in each}
    assert verbs == {
        *("INFO", "STREAM.INFO", "STREAM.MSG.GET", "STREAM.PURGE"),
        *(f"CONSUMER.{verb}" for verb in ("CREATE", "INFO", "LIST", "MSG.NEXT", "DELETE")),
    }

    trimming = [name for name, each in rights.items() if any("PURGE" in s for s in each.publish)]
    assert trimming == [ARCHIVER]

    # and the server sends no reply on through an import of messages, as each has a wildcard
    changing = [subject for subject in found if "$JS" not in subject or "PURGE" in subject]
    assert all(subject[-1] in "*>" for subject in changing)


def test_the_cluster_of_an_agent_is_one_token_of_its_subjects() -> None:
    agent = Member(User("agent-v1", by_key(1)), "agent", "prod.v1")

    rights = agent.rights("acme")

    assert rights.may_publish("np.cmd.acme.prod~v1.train.ApplyNodePool")
    assert not rights.may_publish("np.cmd.acme.prod.v1.ApplyNodePool")
    assert rights.may_subscribe("np.evt.*.acme.prod~v1.*.*")
