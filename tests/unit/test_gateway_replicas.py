"""A reader whose queries are answered by replicas of the gateway that show different states."""

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers import answer_list, answer_unchanged, answer_watch
from gateway.model import Held, ReadModel
from gateway.refusals import Refusal
from nodepool.client import gateway_objects
from nodepool.client.asking import Asker, Reply
from nodepool.client.errors import Refused
from nodepool.client.gateway_objects import GatewayObjects
from nodepool.client.objects import Listed, Object
from nodepool.client.revisions import EXPIRED, Revisions, position_in
from nodepool.client.session import Session
from nodepool.contract.documents import text
from nodepool.contract.queries import List, Watch, query_in

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Write = tuple[str, bool]
"""The name of a Node, and whether it exists from then on."""


class Ended(Exception):
    """No more answers come."""


class Replicas(Asker):
    """Replicas of the gateway that follow the same writes, each as far as it has read them.

    script: which replica answers each query, and how many writes it has read by then.
    asked: the queries. revisions: those of the answers to the queries for changes.
    is_silent: whether the log does not say where it ends.
    """

    is_silent = False

    def __init__(
        self, writes: Sequence[Write], script: Iterator[tuple[int, int]], clusters: Sequence[str]
    ) -> None:
        super().__init__(session())
        self._writes, self._script = writes, script
        self.models = [ReadModel(), ReadModel(), ReadModel()]
        self.asked: list[str] = []
        self.revisions: list[int] = []
        for model in self.models:
            model.begin("nodes", "e")
            model.begin("clusters", "c")
            for revision, name in enumerate(clusters, 1):
                content = json.dumps({"metadata": {"name": name}}).encode()
                model.take("clusters", "acme", name, Held(revision, revision, content), NOW)

    def read(self, replica: int, revision: int) -> None:
        """Have a replica read the writes up to a revision."""
        model = self.models[replica]
        for number in range(model.rooms["nodes"].revision + 1, revision + 1):
            name, exists = self._writes[number - 1]
            node = {"metadata": {"name": name, "resourceVersion": str(number)}}
            content = json.dumps(node).encode() if exists else b""
            model.take("nodes", "acme", f"prod.{name}", Held(number, number, content), NOW)

    async def ask(
        self,
        query: str,
        fields: Mapping[str, object],
        *,
        wait_s: float = 0.0,
        patient: bool = False,
    ) -> Reply:
        """Return the answer of the replica whose turn it is."""
        asked = {name: value for name, value in fields.items() if value}
        self.asked.append(f"{query} {asked['kind']}{' current' if 'current' in asked else ''}")
        if self.is_silent and "current" in asked:
            raise Refused("", "Unavailable", "the log does not answer")
        decoded = query_in(query, json.dumps(asked).encode())
        replica = 0
        if asked["kind"] == "nodes":
            replica, revision = next(self._script, (0, -1))
            if revision < 0:
                raise Ended
            self.read(replica, revision)
        model = self.models[replica]
        match decoded:
            case List():
                answer: bytes | Refusal | None = answer_list(model, "acme", decoded, 0)
            case Watch():
                answer = answer_watch(model, "acme", decoded, 0)
                if answer is None:
                    answer = answer_unchanged(model, decoded, 0)
            case _:
                raise AssertionError(decoded)
        assert answer is not None
        if isinstance(answer, Refusal):
            raise Refused(answer.field, answer.reason, answer.error)
        reply: Reply = json.loads(answer)
        if isinstance(decoded, Watch):
            self.revisions.append(position_in(str(reply["revision"])))
        return reply

    async def ask_for_changes(self, fields: Mapping[str, object]) -> Reply:
        """Return the next changes."""
        return await self.ask("Watch", fields)


def session() -> Session:
    return Session("nats://127.0.0.1:1", org="acme", cluster="prod")


def show(change: Object | Listed) -> str:
    """A Node and its version, as a reader sees it."""
    if isinstance(change, Listed):
        return "listed"
    if change.document is None:
        return f"{change.key} deleted@{change.deleted_at}"
    return f"{change.key}@{text(change.document, 'metadata', 'resourceVersion')}"


async def follow(
    writes: Sequence[Write],
    script: Sequence[tuple[int, int]],
    *,
    everywhere: bool = False,
    clusters: Sequence[str] = ("prod",),
) -> tuple[list[str], Replicas]:
    """What a reader sees until there are no more answers."""
    replicas = Replicas(writes, iter(script), clusters)
    objects = GatewayObjects(session(), replicas)
    return await see(objects.follow_all("nodes", everywhere=everywhere)), replicas


async def see(changes: AsyncGenerator[Object | Listed, None]) -> list[str]:
    """What comes until there are no more answers."""
    seen = list[str]()
    with suppress(Ended):
        async with aclosing(changes):
            async for change in changes:
                seen.append(show(change))
    return seen


@pytest.fixture(autouse=True)
def pages_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each list has as many pages as objects."""
    monkeypatch.setattr(gateway_objects, "PAGE", 1)


async def test_what_only_a_later_page_lacks_comes_as_a_change() -> None:
    # given a Node that has changed, and a replica that does not know it yet
    writes = [("n1", True), ("n2", True), ("n2", True)]

    # when this replica answers the second page, and both know the change later
    seen, _ = await follow(writes, [(0, 3), (1, 2), (0, 3), (1, 3)])

    # then the change comes
    assert seen == ["n1@1", "n2@2", "listed", "n2@3"]


async def test_the_pages_of_an_agent_lack_nothing_either() -> None:
    writes = [("n1", True), ("n2", True), ("n2", True)]
    replicas = Replicas(writes, iter([(0, 3), (1, 2), (1, 3)]), ["prod"])
    objects = GatewayObjects(session(), replicas)

    found, revisions = await objects.list_all("nodes", everywhere=False)
    changes = await see(objects.changes_after("nodes", revisions))

    assert [*(show(each) for each in found), *changes] == ["n1@1", "n2@2", "n2@3"]


async def test_no_older_state_comes_after_that_of_the_newest_page() -> None:
    # given a Node n1 that has changed twice, and a Node n0 that was deleted
    writes = [("n0", True), ("n1", True), ("n2", True), ("n1", True), ("n0", True), ("n0", False)]
    writes += [("n1", True), ("n2", True)]

    # when the first page comes from a replica that knows all of this, the second from one that is
    # behind, and the changes first from one that is behind as well
    seen, _ = await follow(writes, [(0, 7), (1, 3), (1, 5), (2, 6), (1, 8), (1, 8)])

    # then the reader sees no older version of n1 again, and nothing of the n0 that is deleted
    assert seen == ["n1@7", "n2@3", "listed", "n0 deleted@6", "n1@7", "n2@8"]


async def test_a_watch_at_a_replica_that_is_behind_keeps_its_place() -> None:
    # given a reader that has seen n1 at 4
    writes = [("n1", True), ("n2", True), ("n1", True), ("n1", True), ("n2", True)]

    # when a replica that is behind has no changes, and has read one more write by the next query
    seen, _ = await follow(writes, [(0, 2), (0, 2), (0, 4), (1, 2), (1, 3), (1, 5)])

    # then n1 does not go back to 3
    assert seen == ["n1@1", "n2@2", "listed", "n1@4", "n2@5"]


async def test_an_answer_that_is_full_shows_nothing_older_than_the_newest_page() -> None:
    # given a reader whose only page knows n1 at 2, and a replica that is behind that page
    writes = [("n1", True), ("n1", True), ("n2", True), ("n1", True)]

    # when that replica knows n1 at 1, and an answer of another one ends before n1 at 4
    seen, _ = await follow(writes, [(2, 3), (0, 0), (0, 1), (2, 4), (2, 4), (2, 4)])

    # then n1 does not go back to 1
    assert seen == ["n1@2", "listed", "n2@3", "n1@4"]


async def test_the_revision_of_another_read_model_lets_the_watch_expire() -> None:
    # given a page of a read model, and one of another that begins again
    revisions = Revisions().include("old-9").include("new-3")

    # then the watch begins nowhere, whichever came first
    assert revisions == EXPIRED
    assert Revisions().include("new-3").include("old-9").include("new-4") == EXPIRED


async def test_a_list_that_comes_again_shows_all_that_the_log_has() -> None:
    # given a gateway that does not know any more what was deleted before revision 2
    replicas = Replicas([("n1", True)], iter([(0, 1)] * 3), ["prod"])
    replicas.models[0].rooms["nodes"].floor = 2

    # when a reader that is at revision 1 has to list the Nodes again
    objects = GatewayObjects(session(), replicas)
    seen = await see(objects.follow_all("nodes", everywhere=False))

    # then a replica that is behind what the reader has seen does not answer
    assert replicas.asked == [
        "List nodes",
        "Watch nodes",
        "List nodes current",
        "Watch nodes",
    ]
    assert seen == ["n1@1", "listed", "n1@1"]


async def test_a_list_of_several_pages_asks_once_for_all_that_the_log_has() -> None:
    # given two Nodes, of which the second one changed last
    replicas = Replicas([("n1", True), ("n2", True)], iter([(0, 2)] * 4), ["prod"])
    objects = GatewayObjects(session(), replicas)

    # when all that the log has is asked for
    seen = await see(objects.follow_all("nodes", everywhere=False, current=True))

    # then the second page has to show what the first one does, and no more
    assert replicas.asked[:2] == ["List nodes current", "List nodes"]
    assert seen == ["n1@1", "n2@2", "listed"]


async def test_a_list_that_comes_again_is_answered_while_the_log_does_not_say_where_it_ends() -> (
    None
):
    # given a gateway that has forgotten what was deleted before revision 2, and a silent log
    replicas = Replicas([("n1", True)], iter([(0, 1)] * 3), ["prod"])
    replicas.models[0].rooms["nodes"].floor = 2
    replicas.is_silent = True

    # when a reader that is at revision 1 has to list the Nodes again
    objects = GatewayObjects(session(), replicas)
    seen = await see(objects.follow_all("nodes", everywhere=False))

    # then it gets what the gateway knows
    assert replicas.asked[2:4] == ["List nodes current", "List nodes"]
    assert seen == ["n1@1", "listed", "n1@1"]


async def test_changes_are_complete_from_before_the_clusters_are_listed() -> None:
    # given the Nodes of all clusters, of which one is registered after the clusters were listed
    writes = [("n1", True), ("n2", True)]

    # when its Node is there before the pages of the other clusters are asked for
    seen, replicas = await follow(writes, [(0, 1), (0, 2), (0, 2)], everywhere=True, clusters=())

    # then its Node comes as a change
    assert replicas.asked == ["List nodes", "List clusters", *["Watch nodes"] * 3]
    assert seen == ["listed", "acme.prod.n2@2"]


NAMES = st.sampled_from(["n1", "n2"])
STEPS = st.tuples(st.integers(0, 2), st.integers(0, 3))


@given(
    st.lists(st.tuples(NAMES, st.integers(0, 3).map(bool)), min_size=6, max_size=16),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
    st.lists(STEPS, max_size=25),
)
async def test_a_reader_never_goes_back_and_misses_nothing(
    writes: list[Write], read: list[int], steps: list[tuple[int, int]]
) -> None:
    # given replicas that read the writes at different times, and answer in any order
    script = list[tuple[int, int]]()
    for replica, count in steps:
        read[replica] += count
        script.append((replica, min(read[replica], len(writes))))

    # when a reader lists, and follows the changes until a replica has shown them all
    script += [(0, len(writes))] * (len(writes) + 8)
    seen, replicas = await follow(writes, script)

    # then its place does not go back, and nothing that it sees is older than before
    assert replicas.revisions == sorted(replicas.revisions)
    newest, known = dict[str, int](), dict[str, str]()
    for change in seen:
        what, _, at = change.partition("@")
        name = what.removesuffix(" deleted")
        assert int(at or 0) >= newest.get(name, 0)
        newest[name], known[name] = int(at or 0), change

    # and it knows the Nodes that a list shows in the end
    listed = replicas.models[0].contents("nodes", "acme")
    assert sorted(each for name, each in known.items() if each.startswith(f"{name}@")) == [
        show(Object(key.removeprefix("prod."), json.loads(node), 0)) for key, node in listed
    ]
