"""Identities on a real server: what each sees, and keys that are given, rotated and taken."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from bus.accounts import SERVER, VIOLATION
from bus.guarded_gateway import ask
from bus.harness import BINARY, limit, outcome, outcomes, send, serving, unreachable, until
from gateway.host.settings import GatewaySettings
from gateway.main import Gateway
from nodepool.auth.accounts import GATEWAY, OPERATOR, PROVISIONER
from nodepool.auth.folder import AuthFolder
from nodepool.cli.app import run
from nodepool.host.settings import Settings
from nodepool.local.config import MAX_PAYLOAD
from nodepool.local.server import NatsServer
from nodepool.nats.log.api import last_position, leaders_message_at
from nodepool.nats.log.streams import STREAM, provision
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.connection import Connection, connect
from nodepool.nats.wire.library import Msg, NatsError
from support.constants import H100, ZONE
from support.services import services
from testbed.ports import free_port

ORGS = ("acme", "umbra")
NAMES = ("vera", "edith", "agent-prod")
REFUSED = "refuses the user"
RELOADED, SIGNALS = "Reloaded server configuration", 2
"""What the server logs after each signal, and how many signals a verb sends."""
FIRST, SENDERS = 10, 6
CHANGES = 60
"""How many changes are sent while keys are rotated."""
MANIFEST = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "train"},
    "spec": {"instanceType": H100, "targetNodes": 1},
}


class Installation:
    """A running server with the identities of a folder."""

    def __init__(self, port: int, folder: Path, pid: int) -> None:
        self.url = f"nats://127.0.0.1:{port}"
        self.identities = AuthFolder(folder / "auth")
        self._folder = folder
        self._pid = pid
        self._verbs = 0

    async def auth(self, line: str) -> None:
        """Run a verb of `nodepool auth`, and wait until the server has read its accounts.

        A connection that is made while the server reads them may be closed once more.
        """
        place = ["--dir", str(self.identities.path), "--signal-pid", str(self._pid)]
        assert await asyncio.to_thread(run, ["auth", *line.split(), *place]) == 0
        self._verbs += 1
        log = self._folder / "nats.log"
        await until(lambda: log.read_text().count(RELOADED) == SIGNALS * self._verbs)

    def access(self, user: str) -> Access:
        """What a connection of a user shows: `acme/alice`, or `quota`."""
        org, _, name = user.rpartition("/")
        return self.identities.access(name, org)

    def copy(self, user: str) -> Access:
        """What somebody shows who has copied the credentials of a user."""
        path = self._folder / "stolen.nk"
        shutil.copy(self.access(user).nkey_file, path)
        return Access(nkey_file=str(path))

    def with_user(self, org: str, name: str) -> str:
        """The address with the name of a user who has a password."""
        return self.url.replace("://", f"://{org}.{name}@")

    async def connect_by_password(self, org: str, name: str) -> Connection:
        """A connection of a user who has a password."""
        path = self.identities.path / "keys" / org / f"{name}.password"
        return await connect(
            self.with_user(org, name), name, access=Access(password_file=str(path))
        )

    def copy_of_password(self, org: str, name: str) -> Access:
        """What somebody shows who has copied the password of a user."""
        path = self._folder / "stolen.password"
        shutil.copy(self.identities.path / "keys" / org / f"{name}.password", path)
        return Access(password_file=str(path))

    @asynccontextmanager
    async def user(self, name: str) -> AsyncIterator[Connection]:
        """A connection of a user."""
        connection = await connect(self.url, name, access=self.access(name))
        try:
            yield connection
        finally:
            await connection.close()

    def violations(self) -> list[str]:
        """Every violation of a permission in the log of the server."""
        return VIOLATION.findall((self._folder / "nats.log").read_text())

    @asynccontextmanager
    async def at_work(self, *names: str) -> AsyncIterator[None]:
        """The gateway and services at work, each as its own user."""
        own = Settings(
            url=self.url,
            log_file=str(self._folder / "gateway.log"),
            access=self.identities.access(GATEWAY),
        )
        gateway = Gateway(GatewaySettings(own, str(self.identities.members_file)))
        stop = asyncio.Event()
        task = asyncio.create_task(gateway.run(stop))
        try:
            async with AsyncExitStack() as stack:
                for service in services(*names):
                    log, access = self._folder / f"{service.name}.log", self.access(service.name)
                    await stack.enter_async_context(serving(service, self, log, access=access))
                await until(lambda: gateway.obstacle() is None or task.done())
                yield
        finally:
            stop.set()
            await task


@contextmanager
def installed(folder: Path) -> Iterator[Installation]:
    """A server with the identities of the platform and two organisations."""
    port, identities = free_port(), AuthFolder(folder / "auth")
    identities.init()
    configured = SERVER.format(port=port, folder=folder, max_payload=MAX_PAYLOAD)
    text = configured.replace('"accounts.conf"', '"auth/accounts.conf"')
    (folder / "nats.conf").write_text(text)
    with (
        (folder / "nats.log").open("wb") as log,
        subprocess.Popen(
            [BINARY, "--config", folder / "nats.conf"], stdout=log, stderr=log
        ) as process,
    ):
        try:
            yield Installation(port, folder, process.pid)
        finally:
            process.terminate()


async def prepared(installation: Installation) -> None:
    """Make the streams, and two organisations with a viewer, an editor and an agent each."""
    async with installation.user(PROVISIONER) as provisioner:
        await provision(provisioner)
    for org in ORGS:
        await installation.auth(f"add-organisation {org}")
        await installation.auth(f"add-user {org} vera --role viewer")
        await installation.auth(f"add-user {org} edith --role editor")
        await installation.auth(f"add-agent {org} prod")


async def names(client: Connection, org: str, position: object = 0) -> list[object]:
    """The names of the NodePools that a user is shown."""
    listed = await ask(
        client, f"np.api.{org}.List", kind="nodepools", cluster="prod", notOlderThan=position
    )
    items = listed.get("items")
    assert isinstance(items, list), listed
    return [each["metadata"]["name"] for each in items]


def losses(connection: Connection) -> list[str]:
    """Why a connection was lost, each time."""
    reasons = list[str]()
    connection.on_disconnect.append(lambda: reasons.append(connection.reason))
    return reasons


async def test_two_organisations_on_one_installation_see_their_own_alone(tmp_path: Path) -> None:
    with installed(tmp_path) as installation:
        # given two organisations that were added while the server ran
        await prepared(installation)
        async with installation.at_work("validator", "aggregator"), AsyncExitStack() as stack:
            users = {
                (org, name): await stack.enter_async_context(installation.user(f"{org}/{name}"))
                for org in ORGS
                for name in NAMES
            }
            heard: dict[str, set[str]] = {org: set() for org in ORGS}
            for org in ORGS:
                await users[org, "vera"].subscribe(f"np.evt.*.{org}.*.*.*", cb=_noting(heard[org]))
                await users[org, "vera"].flush()

            # when each agent registers its cluster, and each editor applies a NodePool
            applied = dict[str, object]()
            for org in ORGS:
                place = f"np.cmd.{org}.prod"
                await ask(users[org, "agent-prod"], f"{place}._.RegisterCluster", zone=ZONE)
                manifest = {**MANIFEST, "metadata": {"name": org}}
                reply = await ask(users[org, "edith"], f"{place}.{org}.ApplyNodePool", **manifest)
                applied[org] = reply["position"]

            # then each of them sees the one of its organisation, and hears of it alone
            for org in ORGS:
                for name in NAMES:
                    shown = list[object]()
                    while not shown:
                        shown = await names(users[org, name], org, applied[org])
                    assert shown == [org]
                await until(lambda org=org: bool(heard[org]))
                assert {subject.split(".")[3] for subject in heard[org]} == {org}
            assert installation.violations() == []

            # and neither a foreign query nor what only others may send gets an answer
            first, second = ORGS
            for name, subject in (
                ("vera", f"np.api.{second}.List"),
                ("edith", f"np.cmd.{second}.prod.{second}.ScaleNodePool"),
                ("vera", f"np.cmd.{first}.prod.{first}.ScaleNodePool"),
                ("edith", f"np.cmd.{first}.prod.{first}.DeleteNodePool"),
                ("agent-prod", f"np.cmd.{first}.test._.RegisterCluster"),
            ):
                with pytest.raises(NatsError):
                    await users[first, name].request(subject, b"{}", timeout=0.2)
            assert len(installation.violations()) == 5


async def test_whoever_is_revoked_is_cut_off_and_nobody_else_is(
    tmp_path: Path,
) -> None:
    with installed(tmp_path) as installation:
        # given an editor with two programs, and a colleague, and a copy of the editor's key
        await prepared(installation)
        copy = installation.copy("acme/edith")
        one = await connect(installation.url, "one", access=copy)
        two = await connect(installation.url, "two", access=copy)
        async with installation.user("acme/vera") as colleague:
            cut, kept = [losses(one), losses(two)], losses(colleague)

            # when the editor is revoked
            await installation.auth("revoke acme edith")

            # then both programs are cut off, and the key is refused from then on
            await until(lambda: all(cut))
            await unreachable(installation.url, REFUSED, copy)
            await until(lambda: REFUSED in one.reason)
            assert not one.is_connected
            assert not two.is_connected

            # and the colleague has noticed nothing
            await colleague.flush()
            assert kept == []
        await one.close()
        await two.close()


async def test_a_user_with_a_password_is_known_to_the_gateway_until_it_is_taken_away(
    tmp_path: Path,
) -> None:
    with installed(tmp_path) as installation:
        # given users of two organisations with the same name, each with a password of its own
        await prepared(installation)
        for org in ORGS:
            await installation.auth(f"add-user {org} paul --role editor --password")
        async with installation.at_work("validator", "aggregator"):
            for org in ORGS:
                async with installation.user(f"{org}/agent-prod") as agent:
                    await ask(agent, f"np.cmd.{org}.prod._.RegisterCluster", zone=ZONE)

                # when each applies a NodePool
                paul = await installation.connect_by_password(org, "paul")
                manifest = {**MANIFEST, "metadata": {"name": org}}
                reply = await ask(paul, f"np.cmd.{org}.prod.{org}.ApplyNodePool", **manifest)

                # then it is stored as that user's, and shown to its organisation
                assert await names(paul, org, reply["position"]) == [org]
                async with installation.user(OPERATOR) as operator:
                    position = int(str(reply["position"]))
                    stored = await leaders_message_at(operator, STREAM, position)
                assert stored is not None
                assert json.loads(stored.content)["actor"] == f"{org};paul;editor;127.0.0.1"
                await paul.close()

        # when the password of the one is rotated, and the other one is revoked
        first, second = [await installation.connect_by_password(org, "paul") for org in ORGS]
        stolen = installation.copy_of_password(ORGS[0], "paul")
        cut = [losses(first), losses(second)]
        await installation.auth(f"rotate {ORGS[0]} paul")
        await installation.auth(f"revoke {ORGS[1]} paul")
        await until(lambda: all(cut))

        # then the old password is refused, and the new one lets its user in again
        await unreachable(installation.with_user(ORGS[0], "paul"), REFUSED, stolen)
        await until(lambda: first.is_connected)
        await until(lambda: "cannot read" in second.reason)
        for connection in (first, second):
            await connection.close()


async def test_a_service_whose_key_is_rotated_goes_on_and_the_key_before_is_refused(
    tmp_path: Path,
) -> None:
    (quota,) = services("quota")
    with installed(tmp_path) as installation:
        await prepared(installation)
        copy = installation.copy("quota")
        async with (
            installation.user(OPERATOR) as operator,
            serving(
                quota, installation, tmp_path / "quota.log", access=installation.access("quota")
            ),
        ):
            # given a service at work
            await send(operator, limit(1), "c1")
            await outcome(operator, "c1")

            # when its key is rotated
            await installation.auth("rotate quota")

            # then it goes on with the new one
            await send(operator, limit(2), "c2")
            await outcome(operator, "c2")

        # and the old one is refused
        await unreachable(installation.url, REFUSED, copy)


async def test_every_key_is_rotated_under_load_and_nothing_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    with installed(tmp_path) as installation:
        await prepared(installation)
        copy = installation.copy(OPERATOR)
        async with (
            installation.at_work("validator", "aggregator"),
            installation.user("acme/edith") as editor,
            installation.user("acme/agent-prod") as agent,
        ):
            # given a NodePool, and changes that are sent until they are acknowledged
            place, taken = "np.cmd.acme.prod", list[int]()
            await ask(agent, f"{place}._.RegisterCluster", zone=ZONE)
            await ask(editor, f"{place}.train.ApplyNodePool", **MANIFEST)

            async def send_until_taken(target: int) -> None:
                command, ids = json.dumps({"targetNodes": target}), {"Nats-Msg-Id": f"c{target}"}
                while target not in taken:
                    with suppress(NatsError):
                        reply = await editor.request(
                            f"{place}.train.ScaleNodePool", command.encode(), 1, headers=ids
                        )
                        if "position" in json.loads(reply.data):
                            taken.append(target)

            async def send_some(first: int) -> None:
                for target in range(first, FIRST + CHANGES, SENDERS):
                    await send_until_taken(target)

            sending = asyncio.gather(*map(send_some, range(FIRST, FIRST + SENDERS)))

            # when every key is rotated in the middle, twice
            for part in (1, 2):
                await until(lambda part=part: len(taken) >= part * CHANGES // 3)
                await installation.auth("rotate --all")
            await sending

            # then each change is accepted, and each has changed the NodePool once
            ids = [f"c{target}" for target in range(FIRST, FIRST + CHANGES)]
            async with installation.user(OPERATOR) as operator:

                async def are_done() -> bool:
                    # The server may still be taking up its accounts.
                    with suppress(NatsError):
                        found = await outcomes(operator)
                        return all({*found.get(id, ())} == {"CommandAccepted"} for id in ids)
                    return False

                await until(are_done)
                last = await last_position(operator, STREAM)
            query = {"kind": "nodepools", "cluster": "prod", "name": "train"}
            shown = dict[str, object]()
            while "object" not in shown:
                # The gateway may still be connecting with its new key.
                with suppress(NatsError):
                    shown = await ask(editor, "np.api.acme.Get", **query, notOlderThan=last)
            assert _generation(shown) == 1 + CHANGES

        # and no key from before lets anybody in
        await unreachable(installation.url, REFUSED, copy)


def test_the_server_of_a_data_directory_says_whether_it_has_its_accounts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "data"
    words = ["auth", "init", "--dir", str(data_dir / "auth")]
    # given a data directory without a server, then with one
    assert run(words) == 0
    assert "found no server" in capsys.readouterr().err
    with NatsServer(data_dir, free_port(), Path(BINARY)) as server:
        # when identities are written
        # then the server has read them
        assert run(words) == 0
        assert f"process {server.pid} has read its accounts" in capsys.readouterr().out

        # and a configuration that it cannot use is no success
        (data_dir / "nats-server.conf").write_text("accounts {")
        assert run(words) == 1
        assert "the server keeps its accounts" in capsys.readouterr().err


def _generation(shown: dict[str, object]) -> int:
    match shown:
        case {"object": {"metadata": {"generation": int(generation)}}}:
            return generation
    raise AssertionError(shown)


def _noting(subjects: set[str]) -> Callable[[Msg], Awaitable[None]]:
    async def note(message: Msg) -> None:
        subjects.add(message.subject)

    return note
