"""The matrix of rights: as its text has it, as the contract has it, and as a real server has it."""

import asyncio
from pathlib import Path

from bus.accounts import guarded_server, identities
from bus.asking import VERBS, Denied, denied
from bus.harness import unreachable
from bus.matrix import TEXT, allowed, matrix_text, sections
from nodepool.auth.rights import inbox_prefix, service_rights
from nodepool.contract.log import SUBJECTS, covers
from nodepool.contract.messages import Event
from support.services import services


def test_the_text_that_people_read_is_the_matrix() -> None:
    assert TEXT.read_text(encoding="utf-8") == matrix_text(), "write it: python -m bus.matrix"


def test_a_service_may_say_all_that_it_says_and_nothing_that_another_service_says() -> None:
    # given what each service may publish to the log
    log = {
        service.name: [
            each
            for each in service_rights(service).publish
            if any(covers(taken, each) for taken in SUBJECTS)
        ]
        for service in services()
    }

    for service in services():
        # then it is all that the service says
        said = [kind for kind in service.outputs.values() if issubclass(kind, Event)]
        assert all(
            f"np.evt.{service.name}.*.*.*.{kind.__name__}" in log[service.name] for kind in said
        )

        # and nothing of it may be published by another
        others = [each for name, own in log.items() if name != service.name for each in own]
        assert not {*log[service.name]} & {*others}


async def test_a_real_server_denies_all_that_the_matrix_does_not_allow_and_nothing_else(
    tmp_path: Path,
) -> None:
    # given every identity, and every subject of the contract
    everyone, _ = identities()
    subjects = [subject for section in sections(everyone) for subject in section.subjects]
    rights = {subject: allowed(subject, everyone) for subject in subjects}
    with guarded_server(tmp_path) as server:
        # when each identity tries each verb on each subject
        await server.until_ready()
        ruled = [each for each in everyone if each.rights is not None]
        found = await asyncio.gather(
            *(denied(server.port, each.key, inbox_prefix(each.user), subjects) for each in ruled)
        )

    # then the server denies what the matrix says, to each of them
    for identity, refused in zip(ruled, found, strict=True):
        expected = {
            Denied(verb, subject)
            for subject, who in rights.items()
            for verb in VERBS
            if identity.name not in (who.subscribe if verb == "subscribe" else who.publish)
        }
        # A subject with wildcards cannot be published on, whoever tries.
        assert {each for each in refused if _can_be(each)} == {
            each for each in expected if _can_be(each)
        }, identity.name


def _can_be(each: Denied) -> bool:
    return each.verb == "subscribe" or not {"*", ">"} & {*each.subject.split(".")}


async def test_who_shows_no_key_cannot_connect(tmp_path: Path) -> None:
    with guarded_server(tmp_path) as server:
        await server.until_ready()

        error = await unreachable(server.url, "refuses the user")

        assert "refuses the user" in error.reason
