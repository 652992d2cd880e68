"""The command line with the credentials of users of organisations, who have no JetStream."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import NamedTuple

import pytest

from bus.cli import Done, lines_until
from bus.harness import BINARY, PATIENCE_S, ReplicaProcess, launched, serving
from nodepool.auth.accounts import GATEWAY, OPERATOR, PROVISIONER
from nodepool.auth.folder import AuthFolder
from nodepool.auth.users import new_member
from nodepool.cli.app import run
from nodepool.client import Client
from nodepool.client.manifests import parse_manifest
from nodepool.contract.model import API_VERSION
from nodepool.local.config import MAX_PAYLOAD
from nodepool.nats.log.streams import provision
from nodepool.nats.wire.connection import connect
from support.constants import H100, ZONE
from support.services import services
from testbed.cluster import wait_until
from testbed.ports import free_port

pytest.importorskip("nacl", reason="needs the package PyNaCl")

FULL = "nodepool.compute.coreweave.com"
ORG, OTHER, NEW = "acme", "umbra", "newcomer"
USERS = (
    (ORG, "vera", "viewer"),
    (ORG, "edith", "editor"),
    (ORG, "olga", "owner"),
    (OTHER, "ulrich", "owner"),
    (NEW, "nora", "owner"),
)
SERVER = """\
listen: "127.0.0.1:{port}"
max_payload: {max_payload}
jetstream {{ store_dir: "{folder}/data" }}
include "auth/accounts.conf"
"""
MANIFEST = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {{name: {name}}}
spec: {{instanceType: {type}, targetNodes: {target}}}
"""
REFUSED = (
    (
        "vera",
        "apply -f {manifest}",
        "acme/vera (viewer) may not send ApplyNodePool; ask a user with the role editor or"
        " owner (Forbidden)",
    ),
    (
        "edith",
        "delete np train",
        "acme/edith (editor) may not send DeleteNodePool; ask a user with the role owner"
        " (Forbidden)",
    ),
    ("olga", f"set quota {H100} 99 --zone {ZONE}", "acme/olga (owner) may not send SetQuota; "),
    ("olga", f"fleet add {ZONE} {H100} 1", "acme/olga (owner) may not send AddMachines; "),
    ("olga", "get capacities", "acme/olga (owner) may not see the capacity of the platform; "),
    ("olga", "get machines", "acme/olga (owner) may not see the machines of the platform; "),
    ("olga", "get preemptions", "acme/olga (owner) may not list preemptions; "),
    ("olga", "get pods", "acme/olga (owner) may not list Pods; "),
    ("olga", "dead list", "acme/olga (owner) may not see dead letters, backups or versions; "),
    ("olga", "log query FROM", "acme/olga (owner) may not read the log itself; "),
    ("olga", "run --pool train -- true", "acme/olga (owner) may not follow a Pod; "),
    (
        "olga",
        "--org umbra get np",
        "org: the credentials are those of acme/olga (owner), who sees acme only (Forbidden)",
    ),
)
"""The refused commands: the user, the command, and the text of the error."""
POOLS = 150
Command = Callable[..., Done]
User = Callable[..., Command]


class Installation(NamedTuple):
    """A server with accounts, and everything that works there but the gateway."""

    port: int
    folder: Path
    identities: AuthFolder

    @property
    def url(self) -> str:
        """Where the server is."""
        return f"nats://127.0.0.1:{self.port}"

    @contextmanager
    def gateway(self, archive: str = "") -> Iterator[ReplicaProcess]:
        """A gateway as a process, once it is ready."""
        with launched(
            "gateway",
            self,
            self.folder,
            free_port(),
            members_file=str(self.identities.members_file),
            nkey_file=str(self.identities.key_file(GATEWAY)),
            archive=archive,
        ) as process:
            wait_until("the gateway is ready", process.is_ready, PATIENCE_S)
            yield process


class Everything(threading.Thread):
    """All services in a thread, each with its own credentials."""

    def __init__(self, installation: Installation) -> None:
        super().__init__()
        self._installation = installation
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> None:
        self.start()
        assert self._ready.wait(60)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self.join()

    def run(self) -> None:
        """Run the services until `__exit__`."""
        self._loop.run_until_complete(self._work())
        self._loop.close()

    async def _work(self) -> None:
        here = self._installation
        connection = await connect(here.url, "test", access=here.identities.access(PROVISIONER))
        await provision(connection)
        await connection.close()
        async with AsyncExitStack() as stack:
            for service in services():
                access, log = here.identities.access(service.name), here.folder / service.name
                await stack.enter_async_context(serving(service, here, log, access=access))
            self._ready.set()
            await self._end.wait()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Two organisations with their users, and every service at work."""
    folder, port = tmp_path_factory.mktemp("installation"), free_port()
    identities = AuthFolder(folder / "auth")
    identities.init()
    for org in (ORG, OTHER, NEW):
        identities.change(methodcaller("with_organisation", org))
    for org, name, role in USERS:
        identities.add_member(org, partial(new_member, name, role=role))
    text = SERVER.format(port=port, folder=folder, max_payload=MAX_PAYLOAD)
    (folder / "nats.conf").write_text(text)
    with subprocess.Popen(
        [BINARY, "--config", folder / "nats.conf", "-l", folder / "nats.log"]
    ) as server:
        try:
            here = Installation(port, folder, identities)
            with Everything(here):
                yield here
        finally:
            server.terminate()


def settings(installation: Installation, name: str, org: str) -> dict[str, str]:
    """The environment of a user's command line."""
    return {
        "NODEPOOL_URL": installation.url,
        "NODEPOOL_NKEY_FILE": str(installation.identities.key_file(name, org)),
        "NODEPOOL_CLUSTER": "prod",
    }


@contextmanager
def running(
    installation: Installation, name: str, *arguments: str
) -> Iterator["subprocess.Popen[str]"]:
    """A command of a user of the first organisation, as a process."""
    others = {key: text for key, text in os.environ.items() if not key.startswith("NODEPOOL_")}
    with subprocess.Popen(
        [sys.executable, "-m", "nodepool.cli", *arguments],
        env={
            **others,
            **settings(installation, name, ORG),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONUNBUFFERED": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def user(
    installation: Installation,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> User:
    """Makes the command line of a user; without an organisation, of the platform."""

    def of(name: str, org: str = "") -> Command:
        def command(*arguments: str) -> Done:
            for variable, text in settings(installation, name, org).items():
                monkeypatch.setenv(variable, text)
            code = run(list(arguments))
            printed = capsys.readouterr()
            return Done(code, printed.out, printed.err)

        return command

    return of


@pytest.fixture
def cluster(installation: Installation, user: User) -> None:
    """A cluster of each organisation with quota, and machines, as an operator prepares them."""
    operator = user(OPERATOR)
    for org in (ORG, OTHER):
        operator("--org", org, "register", "cluster", "prod", "--zone", ZONE)
        operator("--org", org, "set", "quota", H100, "8", "--zone", ZONE)
    assert operator("fleet", "add", ZONE, H100, "4").code == 0


def manifest(folder: Path, name: str, target: int) -> str:
    """The path of a manifest."""
    path = folder / f"{name}.yaml"
    path.write_text(MANIFEST.format(name=name, type=H100, target=target))
    return str(path)


def test_an_editor_changes_a_nodepool_and_sees_what_becomes_of_it(
    installation: Installation, cluster: None, user: User, tmp_path: Path
) -> None:
    editor, owner = user("edith", ORG), user("olga", ORG)
    with installation.gateway():
        # when an editor creates a NodePool and scales it
        applied = editor("apply", "-f", manifest(tmp_path, "train", 1), "-o", "yaml")
        labelled = editor("label", "np", "train", "team=a")
        scaled = editor("scale", "np", "train", "--replicas", "2")
        reached = editor("wait", "np/train", "--for", "condition=AtTarget", "--timeout", "60s")

        # then each command shows what it has done
        assert (applied.code, labelled.code, scaled.code, reached.code) == (0, 0, 0, 0), reached
        assert "targetNodes: 1" in applied.out
        assert labelled.out == f"{FULL}/train labeled\n"
        assert scaled.out == f"{FULL}/train scaled\n"
        assert reached.out == f"{FULL}/train condition met\n"

        # and every way of reading shows it
        shown = {
            line: editor(*line.split())
            for line in (
                "get np train -o jsonpath={.spec.targetNodes}",
                "get np -A",
                "get np -l team=a -o name",
                "get nodes -o name",
                "get quotas",
                "get clusters -o name",
                "get instancetypes -o name",
                "describe np train",
                "events --for np/train",
                "explain np train",
                f"find capacity {H100}=1",
            )
        }
        assert {line: done.code for line, done in shown.items()} == dict.fromkeys(shown, 0)
        assert {line: done.err for line, done in shown.items()} == dict.fromkeys(shown, "")
        texts = {line: done.out for line, done in shown.items()}
        assert texts["get np train -o jsonpath={.spec.targetNodes}"].strip() == "2"
        assert texts["get np -A"].splitlines()[1].split()[:3] == [ORG, "prod", "train"]
        assert texts["get np -l team=a -o name"] == f"{FULL}/train\n"
        assert len(texts["get nodes -o name"].splitlines()) == 2
        assert texts["get clusters -o name"].endswith("/prod\n")
        assert H100 in texts["get instancetypes -o name"]
        assert "CWNodePoolCreated" in texts["describe np train"]
        assert "CWNodePoolScaledUp" in texts["events --for np/train"]
        assert "nothing blocks it" in texts["explain np train"]
        assert ZONE in texts[f"find capacity {H100}=1"]

        # and its Nodes can be worked on
        node, other = (
            name.removeprefix("node/") for name in texts["get nodes -o name"].splitlines()
        )
        worked = [editor(*f"{verb} {node}".split()) for verb in ("cordon", "uncordon", "drain")]
        assert [done.code for done in worked] == [0] * 3, worked
        # A machine that answers late is named.
        late = ("", f"node/{node} waits for its machine to answer\n")
        assert [done.err for done in worked[:2]] == ["", ""]
        assert worked[2].err in late
        locked = editor("lock", other, "--job", "7")
        assert locked.code == 0, locked

        # and an owner deletes it, and waits until it is gone
        deleted = owner("delete", "np", "train", "--wait", "--timeout", "60s")
        assert (deleted.code, deleted.out) == (0, f'{FULL} "train" deleted\n'), deleted
        assert editor("get", "np").err == "No resources found\n"


def test_users_see_who_belongs_to_their_organisation(
    installation: Installation, user: User
) -> None:
    with installation.gateway():
        # when users of two organisations ask, then each sees those of the own one
        shown = user("vera", ORG)("users")
        assert (shown.code, shown.err) == (0, "")
        assert [line.split() for line in shown.out.splitlines()] == [
            ["USER", "ROLE", "CLUSTER"],
            ["edith", "editor", "<none>"],
            ["olga", "owner", "<none>"],
            ["vera", "viewer", "<none>"],
        ]
        other = user("ulrich", OTHER)("users", "-o", "csv", "--no-headers")
        assert other.out == "ulrich,owner,\n"

        # and an operator is told where all users are
        operator = user(OPERATOR)("users")
        assert (operator.code, "nodepool auth list" in operator.err) == (1, True)


def test_a_watch_goes_on_while_the_gateway_is_replaced(
    installation: Installation, cluster: None, user: User, tmp_path: Path
) -> None:
    editor = user("edith", ORG)
    with installation.gateway() as gateway:
        assert editor("apply", "-f", manifest(tmp_path, "watched", 0)).code == 0
        with (
            running(installation, "vera", "get", "np", "-w") as objects,
            running(installation, "vera", "events", "-w") as events,
        ):
            # given two watches that show what is there
            lines_until(objects, "watched")
            lines_until(events, "CWNodePoolCreated")

            # when something changes, then they show it
            assert editor("scale", "np", "watched", "--replicas", "1").code == 0
            lines_until(objects, H100)
            lines_until(events, "CWNodePoolScaledUp")

            # and when the gateway is killed, they say so and wait
            gateway.process.kill()
            lines_until(objects, "is gone; waiting for it")
            with installation.gateway():
                assert editor("scale", "np", "watched", "--replicas", "0").code == 0
                lines_until(objects, "is back")
                lines_until(events, "CWNodePoolScaledDown")


def test_a_command_waits_for_a_gateway_or_says_that_there_is_none(
    installation: Installation, cluster: None, user: User, tmp_path: Path
) -> None:
    editor = user("edith", ORG)
    path = manifest(tmp_path, "late", 0)

    # given no gateway, when a user is not patient, then the error says what is missing
    applied = editor("--request-timeout", "1s", "apply", "-f", path)
    assert applied.code == 3
    assert "no gateway has acknowledged it within 1 s; send it again, which does no harm" in (
        applied.err
    )
    listed = editor("--request-timeout", "1s", "get", "np")
    assert listed.code == 4
    assert listed.err.startswith(f"error: no gateway answers {ORG} at {installation.url}: ")
    examined = editor("doctor")
    assert "problem  gateway: no gateway answers acme" in examined.out

    # and the operator of the platform sees why no organisation gets an answer
    operator = user(OPERATOR, "")
    examined = operator("doctor")
    assert (examined.code, "problem  service gateway: no replica answers" in examined.out) == (
        1,
        True,
    )

    # but when a gateway comes in time, then the command is carried out once
    with running(installation, "edith", "apply", "-f", path) as process, installation.gateway():
        lines_until(process, f"{FULL}/late created")
        assert process.wait(30) == 0
        assert editor("apply", "-f", path).out == f"{FULL}/late unchanged\n"
        examined = editor("doctor")
        assert examined.code == 0, examined
        assert "ok       gateway: it answers acme/edith (editor)" in examined.out
        assert "ok       service gateway: 1 replica answers" in operator("doctor").out


def test_what_a_role_may_not_do_is_refused_with_the_role_and_who_may(
    installation: Installation, user: User, tmp_path: Path
) -> None:
    path = manifest(tmp_path, "train", 1)
    with installation.gateway():
        refused = [
            (user(name, ORG)(*line.format(manifest=path).split()), line, message)
            for name, line, message in REFUSED
        ]

    for done, line, message in refused:
        assert done.code == 1, line
        assert message in done.err, line
        assert message.endswith("(Forbidden)") or "only an operator of the platform may" in done.err


def test_a_user_without_a_cluster_hears_who_registers_one(
    installation: Installation, cluster: None, user: User
) -> None:
    # given an owner of an organisation that has no cluster yet
    owner = user("nora", NEW)
    with installation.gateway():
        # when something is looked for in a cluster, or is to be created in the best one
        lines = ("get np", "get np train", f"find capacity {H100}=1 --create train")
        said = [owner(*line.split()).err for line in lines]

        # then who can register one is named, and no command that is refused to the user
        for text in said:
            assert "ask the operator of the platform to register one" in text
            assert "nodepool register" not in text


def test_nothing_of_another_organisation_is_seen(
    installation: Installation, cluster: None, user: User, tmp_path: Path
) -> None:
    editor, other = user("edith", ORG), user("ulrich", OTHER)
    with installation.gateway():
        # given a NodePool of one organisation
        editor("apply", "-f", manifest(tmp_path, "secret", 1))
        assert editor("get", "np", "secret").code == 0

        # when a user of another one asks in every way
        lines = (
            "get np",
            "get np secret",
            "get np -A",
            "get nodes -A",
            "get quotas",
            "get clusters -A",
            "describe np secret",
            "explain np secret",
            "events",
            "wait np/secret --for create --timeout 0",
            "scale np secret --replicas 0",
            "delete np secret",
        )
        seen = [other(*line.split()) for line in lines]

        # then the answers are as if there were none
        names = [
            text.replace('"secret"', "").replace("nodepool/secret", "")
            for done in seen
            for text in (done.out, done.err)
        ]
        assert not [text for text in names if ORG in text or "CWNodePool" in text]
        assert [done.code for done in seen] == [0, 1, 0, 0, 0, 0, 1, 1, 0, 3, 1, 1]
        assert editor("get", "np", "secret", "-o", "name").out == f"{FULL}/secret\n"


def test_a_gateway_that_is_killed_loses_and_doubles_no_command(
    installation: Installation, cluster: None, user: User
) -> None:
    access = installation.identities.access("edith", ORG)

    async def apply_all(kill: Callable[[], None]) -> list[object]:
        async with Client(
            installation.url, org=ORG, cluster="prod", timeout_s=60, access=access
        ) as client:
            document = {"kind": "NodePool", "apiVersion": API_VERSION}
            spec = {"instanceType": H100, "targetNodes": 0}
            outcomes = list[object]()
            pools = [
                {**document, "metadata": {"name": f"p{n}"}, "spec": spec} for n in range(POOLS)
            ]
            commands = [
                client.nodepools.address_manifest(parse_manifest(pool, "here")) for pool in pools
            ]
            async for _, outcome in client.commands.send_each(commands, window=16):
                outcomes.append(getattr(outcome, "result", outcome))
                if len(outcomes) == POOLS // 3:
                    kill()
            return outcomes

    # given two gateways, when one is killed while an editor creates NodePools
    with installation.gateway() as first, installation.gateway():
        outcomes = asyncio.run(apply_all(first.process.kill))
        listed = user("vera", ORG)("get", "np", "-o", "name")

    # then each is created once
    assert outcomes == ["created"] * POOLS
    names = [line.rpartition("/")[2] for line in listed.out.splitlines()]
    assert {f"p{n}" for n in range(POOLS)} <= set(names)
    assert len(names) == len(set(names))
