"""Messages that another program puts where they do not belong: none changes anything."""

import pytest

from nodepool.contract.subjects import address_of
from support.services import NAMES
from support.world_harness import WorldHarness

BUCKETS = ("nodepools", "nodes", "quotas", "capacity", "machines", "clusters")


def story(world: WorldHarness) -> None:
    """NodePools of all kinds, some on their way out, so that nearly every event was said."""
    world.given_data_center(machines=6, quota=9)
    world.apply("train", 2)
    world.apply("spot", 1, computeClass="spot")
    world.apply("gone", 2)
    world.preempt("spot", "n3")
    world.run_pod("n1", graceS=3600)
    world.delete("gone")
    world.pass_time(minutes=10)
    world.scale("train", 1)
    world.delete("spot")


def knowledge(world: WorldHarness) -> object:
    """What readers see, and what every service knows."""
    documents = [world.documents(bucket) for bucket in BUCKETS]
    return documents, [world.world.state(name) for name in NAMES]


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param("np.cmd.evil.evil.x.{name}", id="on the subject of a command"),
        pytest.param("np.cmd.{tokens}.{name}", id="on that of a command about the same"),
        pytest.param("np.evt.{service}.evil.evil.x.{name}", id="about something else"),
        pytest.param("np.evt.{service}.evil.{tokens}.{name}", id="with a token more"),
        pytest.param("np.evt.evil.{tokens}.{name}", id="of a service that does not exist"),
        pytest.param("np.evt.clock.{tokens}.{name}", id="of the clock"),
    ],
)
def test_no_event_is_believed_where_its_service_does_not_say_it(
    world: WorldHarness, subject: str
) -> None:
    story(world)
    before = knowledge(world)

    for entry in list(world.entries()):
        address = address_of(entry.subject)
        if address is not None and address.kind == "evt":
            tokens = ".".join(entry.subject.split(".")[3:6])
            fields = {"service": address.service, "tokens": tokens, "name": address.name}
            world.put(subject.format(**fields), entry.content, "")
    world.run_until_idle()

    assert knowledge(world) == before


@pytest.mark.parametrize("name", NAMES)
def test_what_a_service_has_said_changes_nothing_for_it_when_another_program_says_it_again(
    world: WorldHarness, name: str
) -> None:
    story(world)
    before = world.world.state(name)

    for entry in list(world.entries()):
        if entry.subject.startswith(f"np.evt.{name}."):
            world.world.log.append(entry.subject, entry.content)
    alone = [host for host in world.world.hosts if host.service.name == name]
    for host in alone:
        world.world.read(host)
        world.world.process(host, even_if_quiet=True)

    assert world.world.state(name) == before


@pytest.mark.parametrize(
    "tokens",
    ["acme/prod.train._", "acme.prod/train._", "acme/prod/train._._", "acme.prod.train/", "/.a.b"],
)
def test_a_name_with_a_slash_stands_for_no_other(world: WorldHarness, tokens: str) -> None:
    world.given_data_center()
    world.apply("train", 2, id="mine")
    before = world.documents("nodepools")

    for name in ("ScaleNodePool", "DeleteNodePool"):
        content = b'{"specversion": "1.0", "id": "mine", "data": {}}'
        world.put(f"np.cmd.{tokens}.{name}", content, "")
    world.put(f"np.cmd.{tokens}.ScaleNodePool", b'{"targetNodes": 0}', "")
    world.run_until_idle()

    assert world.documents("nodepools") == before
    reasons = [text.split(" ")[0] for text in world.outcomes("mine")]
    assert reasons == ["created", "Invalid", "NotFound"]


def test_an_id_that_another_organisation_has_used_is_free_for_everyone_else(
    world: WorldHarness,
) -> None:
    world.given_data_center()
    world.apply("train", 2)

    for subject in ("np.cmd.evil.evil.x.ScaleNodePool", "np.cmd.acme.prod.train.ScaleNodePool"):
        world.put(subject, b'{"targetNodes": 1}', "guessed")
    world.run_until_idle()

    assert [text.split(" ")[0] for text in world.outcomes("guessed")] == ["NotFound", "configured"]
    assert world.node_counts("train") == (1, 0, 1)
