"""Open pages of the console: each is made again only if something that it has read has changed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="needs the packages of nodepool[console]")

from starlette.requests import Request

from console.host.account import Account
from console.host.accounts import Accounts
from console.host.doors import Doors
from console.host.frames import Frame, make_frame
from console.host.identities import OPERATOR, Identity
from console.host.mirror import Mirror
from console.host.noting import Reads, noted
from console.host.routes import PAGES, STILL, find_live
from console.host.sessions import Session
from console.host.settings import ConsoleSettings
from console.host.telemetry import Telemetry
from console.host.web import Site
from console.view.model import Happening, Place
from console.view.system import Found
from nodepool.client.asking import Reply
from nodepool.client.errors import Refused
from nodepool.client.objects import Document, Object
from nodepool.contract.buckets import Bucket
from nodepool.host.settings import Settings
from support.constants import H100, ZONE

NOON: Final = datetime(2026, 11, 23, 12, tzinfo=UTC)
OWNER: Final = Identity("acme", "alice", "owner", "alice.nk")
OPERATING: Final = Identity("", OPERATOR, OPERATOR, "operator.nk")
TRAIN, SERVE = Place("prod", "train"), Place("prod", "serve")
VIEWS: Final[Mapping[Identity, Sequence[str]]] = {
    OWNER: (
        *("/nodepools", "/nodepools?q=train", "/nodepools?by=type&state=wait"),
        *("/nodepools/prod/train", "/nodepools/prod/train?by=state", "/nodepools/prod/serve"),
        *("/nodepools/prod/train?by=table", "/nodepools/other/train", "/nodes/prod/g1"),
        *("/nodes/prod/g2", "/nodes/other/g1", "/events", "/events?name=train"),
        *("/preemptions", "/organisation", "/system"),
    ),
    OPERATING: ("/system", "/fleet", "/nodepools"),
}
"""Pages of each kind that is kept live, with what is there and what is not."""

APART: Final = (
    *("/nodepools", "/nodepools/prod/train", "/nodepools/prod/serve", "/nodes/prod/g1"),
    *("/events", "/organisation"),
)
"""Pages that have little in common."""


class Alone(Account):
    """A user at work whose gateway tells the first event of each object, and nothing more."""

    async def ask(self, query: str, fields: Mapping[str, object]) -> Reply:
        """Return the events, or refuse."""
        if query != "Events":
            raise Refused("", "Unavailable", "the gateway is busy")
        kind = "NodePool" if "pool" in fields else "Node"
        first = {"position": 1, "time": NOON.isoformat(), "severity": "Normal", "reason": "Made"}
        item = {**first, "kind": kind, "name": fields.get("pool", fields.get("node"))}
        return {"items": [item] if fields["after"] == 0 else [], "after": 1, "atEnd": True}


@dataclass
class Opened:
    """A page as it was made last, with what it read."""

    frame: Frame
    reads: Reads


class Tabs:
    """The open pages of a user."""

    def __init__(self, site: Site, account: Account) -> None:
        self.account = account
        self._site, self._session = site, Session("id", b"secret", account.identity, 0.0)

    async def make(self, view: str) -> Opened:
        """Make a page as it is now."""
        found, reads = find_live(urlsplit(view).path), Reads()
        assert found is not None
        scope = {
            "type": "http",
            "state": {"nonce": "n"},
            "path": "/live",
            "headers": [(b"host", b"localhost:1")],
        }
        with reads.open():
            made = self._site._make_frame(Request(scope), self._session, urlsplit(view), found)
            return Opened(make_frame(1, await made), reads)


@asynccontextmanager
async def tabs_of(identity: Identity) -> AsyncIterator[Tabs]:
    """The pages of a user who has two NodePools, with a Node in one of them."""
    with TemporaryDirectory() as folder:
        settings = Settings(metrics_port=-1, log_file=f"{folder}/log")
        telemetry = Telemetry(settings, lambda: ())
        accounts = Accounts(ConsoleSettings(settings, Path(folder), Path(folder)), telemetry.log)
        account = Alone(identity, settings, telemetry.log)
        accounts._at_work[identity] = account, asyncio.create_task(asyncio.sleep(3_600))
        for change in BEGIN:
            change(account)
        try:
            yield Tabs(Site(accounts, telemetry, Doors(1, ""), None), account)
        finally:
            await accounts.close()
            telemetry.close()


# Changes.

Change = Callable[[Account], None]


def put(bucket: Bucket, name: str, document: Document | None) -> Change:
    """An object is as its document says, or is gone."""

    def change(account: Account) -> None:
        account.mirror.fill(bucket, [Object(name, document, 1)])
        account.mirror.note_change()

    return change


def pool(name: str, target: int, reason: str = "Sufficient") -> Change:
    """A NodePool has a target, and a reason for its capacity."""
    reasons = {"Validated": "Valid", "Quota": "Under", "Capacity": reason, "AtTarget": "TargetMet"}
    conditions = [
        {"type": kind, "status": "False" if why == "NoneAvailable" else "True", "reason": why}
        for kind, why in reasons.items()
    ]
    status = {"currentNodes": 1, "conditions": conditions}
    metadata = {"name": name, "generation": 1, "resourceVersion": str(target)}
    spec = {"instanceType": H100, "targetNodes": target}
    return put(
        "nodepools", f"acme.prod.{name}", {"metadata": metadata, "spec": spec, "status": status}
    )


def node(name: str, pool: str, reason: str = "") -> Change:
    """A Node is in a NodePool, and goes for a reason unless that is empty."""
    labels = {"compute.coreweave.com/node-pool": pool, "node.kubernetes.io/instance-type": H100}
    removal = {"type": "CWNodeRemoval", "status": "True" if reason else "False", "reason": reason}
    metadata = {"name": name, "labels": labels, "creationTimestamp": NOON.isoformat()}
    status = {"phase": "production", "conditions": [removal]}
    return put("nodes", f"acme.prod.{name}", {"metadata": metadata, "status": status})


def event(position: int, kind: str, name: str) -> Change:
    """Something happens to an object."""
    happening = Happening("prod", position, NOON, "Normal", "Scaled", kind, name, f"at {position}")
    return lambda account: account.mirror.add(happening)


def explain(place: Place, sentence: str) -> Change:
    """A NodePool is explained, or its explanation is unknown."""
    known = {"sentence": sentence} if sentence else None
    return lambda account: account.mirror.explain(place, known)


def fault(text: str) -> Change:
    """The mirror is not current, or current again."""
    return lambda account: account.mirror.note_fault(text)


def cluster(zone: str) -> Change:
    """The cluster is in a zone, or is gone."""
    return put("clusters", "prod", {"spec": {"zone": zone}} if zone else None)


def quota(limit: int) -> Change:
    """The organisation has a limit of Nodes."""
    shown = {"zone": ZONE, "instanceType": H100, "limit": limit, "used": 1}
    return put("quotas", f"{ZONE}.{H100}", shown)


def forget_events(account: Account) -> None:
    """The mirror has lost its events."""
    account.mirror.happenings.clear()
    account.mirror.note_change()


def examine(text: str) -> Change:
    """The system is examined."""

    def change(account: Account) -> None:
        account.operations.findings = [Found("service quota", "note", text, "")]
        account.mirror.note_all_read()

    return change


def show_past(has_past: bool) -> Change:
    """The gateway has got an archive, or has none any more."""

    def change(account: Account) -> None:
        account._has_past = has_past
        account.mirror.note_change()

    return change


BEGIN: Final[Sequence[Change]] = (
    *(cluster(ZONE), pool("train", 2), pool("serve", 1), node("g1", "train")),
    *(explain(TRAIN, "It waits."), explain(SERVE, "It is well.")),
    lambda account: account.mirror.note_all_read(),
)
NAMES: Final = st.sampled_from(["train", "serve"])
NODES: Final = st.sampled_from(["g1", "g2"])
REASONS: Final = st.sampled_from(["Sufficient", "NoneAvailable"])
CHANGES: Final[st.SearchStrategy[Change]] = st.one_of(
    st.builds(pool, NAMES, st.integers(1, 3), REASONS),
    st.builds(lambda name: put("nodepools", f"acme.prod.{name}", None), NAMES),
    st.builds(node, NODES, NAMES, st.sampled_from(["", "Preempted"])),
    st.builds(lambda name: put("nodes", f"acme.prod.{name}", None), NODES),
    st.builds(event, st.integers(2, 9), st.just("NodePool"), NAMES),
    st.builds(event, st.integers(2, 9), st.just("Node"), NODES),
    st.builds(explain, st.sampled_from([TRAIN, SERVE]), st.sampled_from(["", "It waits.", "No."])),
    st.builds(fault, st.sampled_from(["", "the gateway does not answer"])),
    st.builds(cluster, st.sampled_from([ZONE, "us-east-09a", ""])),
    st.builds(quota, st.integers(1, 3)),
    st.just(forget_events),
    st.builds(examine, st.sampled_from(["not at work", "at work"])),
    st.builds(show_past, st.booleans()),
)


def test_the_pages_below_are_of_each_kind_that_is_kept_live() -> None:
    shown = {found[0] for views in VIEWS.values() for view in views if (found := find(view))}

    assert shown == {show for path, show in PAGES.items() if path not in STILL}


def find(view: str) -> tuple[object, Mapping[str, str]] | None:
    """The page at an address."""
    return find_live(urlsplit(view).path)


@pytest.mark.parametrize("identity", VIEWS, ids=lambda identity: identity.user)
def test_a_page_that_is_not_made_again_is_equal_to_one_that_is_made_now(identity: Identity) -> None:
    @given(st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=1, max_size=4))
    def check(rounds: Sequence[Sequence[Change]]) -> None:
        asyncio.run(follow(identity, rounds))

    check()


async def follow(identity: Identity, rounds: Sequence[Sequence[Change]]) -> None:
    """Change what open pages show, and compare those that are not made again."""
    async with tabs_of(identity) as tabs:
        opened = {view: await tabs.make(view) for view in VIEWS[identity]}
        for changes in rounds:
            for change in changes:
                change(tabs.account)
            for view, before in opened.items():
                is_same = before.reads.hold()
                now = await tabs.make(view)
                if is_same:
                    assert now.frame.after(before.frame) is None, view
                else:
                    opened[view] = now


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (pool("serve", 2), {"/nodepools", "/nodepools/prod/serve", "/organisation"}),
        (node("g2", "serve"), {"/nodepools", "/nodepools/prod/serve", "/organisation"}),
        (event(7, "NodePool", "serve"), {"/nodepools/prod/serve", "/events"}),
        (event(7, "Node", "g1"), {"/nodes/prod/g1", "/events"}),
        (quota(5), {"/organisation"}),
    ],
    ids=["a NodePool", "a Node of it", "an event of it", "an event of a Node", "a quota"],
)
async def test_a_change_concerns_only_the_pages_that_show_it(
    change: Change, again: set[str]
) -> None:
    async with tabs_of(OWNER) as tabs:
        opened = {view: await tabs.make(view) for view in APART}

        change(tabs.account)

        assert {view for view, each in opened.items() if not each.reads.hold()} == again


def test_a_page_from_before_everything_was_read_is_made_again_then() -> None:
    mirror, reads = Mirror("acme"), Reads()
    with reads.open():
        assert not mirror.is_read

    mirror.note_all_read()

    assert not reads.hold()


# What is noted.


class Shelf:
    """Things that a page reads."""

    def __init__(self) -> None:
        self.things = {"a": 1, "b": 2}

    @noted
    def find(self, name: str) -> int:
        """Return a thing."""
        return self.things[name]

    @noted
    def total(self) -> int:
        """Return the sum of all things."""
        return sum(self.find(name) for name in self.things)


@pytest.fixture
def shelf() -> Shelf:
    """A shelf with two things."""
    return Shelf()


def test_an_answer_that_is_computed_from_others_counts_alone(shelf: Shelf) -> None:
    reads = Reads()
    with reads.open():
        assert shelf.total() == 3

    shelf.things = {"a": 2, "b": 1}
    assert reads.hold()
    shelf.things["a"] = 3
    assert not reads.hold()


def test_a_page_that_got_two_answers_to_one_question_is_made_again(shelf: Shelf) -> None:
    reads = Reads()
    with reads.open():
        shelf.find("a")
        shelf.things["a"] = 5
        shelf.find("a")

    assert not reads.hold()
    shelf.things["a"] = 1
    assert not reads.hold()


async def test_of_a_task_that_a_page_begins_and_that_goes_on_nothing_more_is_noted(
    shelf: Shelf,
) -> None:
    may_go_on, reads = asyncio.Event(), Reads()

    async def read_later() -> None:
        await may_go_on.wait()
        shelf.find("b")

    with reads.open():
        shelf.find("a")
        task = asyncio.create_task(read_later())
    may_go_on.set()
    await task
    shelf.things["b"] = 7

    assert reads.hold()
