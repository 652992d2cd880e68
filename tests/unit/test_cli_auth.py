"""`nodepool auth`: what each verb prints and writes, and who may do what."""

import base64
import json
import os
import pathlib
import shutil
import signal
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from nodepool.auth.folder import AuthFolder
from nodepool.auth.users import new_member
from nodepool.cli.app import cli, run
from nodepool.cli.completion import completions
from nodepool.nats.wire.access import Access

pytest.importorskip("nacl", reason="needs the package PyNaCl")

Auth = Callable[..., tuple[int, str, str]]
PREFIX = "nats-py[nkeys]:\n  nats.connect("


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the organisation acme, its editor, its viewer and its agent."""
    folder = AuthFolder(tmp_path_factory.mktemp("made") / "auth")
    folder.init()
    folder.change(lambda users: users.with_organisation("acme"))
    for name, role, cluster in (
        ("alice", "editor", ""),
        ("vera", "viewer", ""),
        ("agent-prod_v1", "agent", "prod.v1"),
    ):
        folder.add_member("acme", partial(new_member, name, role=role, cluster=cluster))
    return folder.path


@pytest.fixture
def auth(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Auth:
    """Runs a verb on a copy of the folder."""
    shutil.copytree(made, tmp_path / "data" / "auth")
    monkeypatch.setenv("NODEPOOL_AUTH_DIR", str(tmp_path / "data" / "auth"))

    def run_verb(*words: str) -> tuple[int, str, str]:
        code = run(["auth", *words])
        return (code, *capsys.readouterr())

    return run_verb


@pytest.fixture
def folder(tmp_path: Path) -> AuthFolder:
    """The folder that `auth` changes."""
    return AuthFolder(tmp_path / "data" / "auth")


def test_a_new_user_gets_a_file_and_the_lines_that_let_its_programs_in(
    auth: Auth, folder: AuthFolder
) -> None:
    # when a user is added
    assert auth("init")[:2] == (0, f"identities in {folder.path} unchanged\n")
    code, out, _ = auth("add-user", "acme", "oneil", "--role", "owner")

    # then its credentials are in a file of its own
    path = folder.key_file("oneil", "acme")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    # and what is printed names the file, never the key
    assert code == 0
    assert out.startswith(f"user/acme/oneil created: owner\ncredentials: {path} (")
    assert f"NODEPOOL_ORG=acme NODEPOOL_NKEY_FILE={path} nodepool get np\n" in out
    assert f"--nkey {path} --inbox-prefix _INBOX_oneil req np.cmd.acme." in out
    assert path.read_text().split()[-1] not in out

    # and the line for nats-py finds the key in the file
    line = out.partition(PREFIX)[2]
    assert "inbox_prefix='_INBOX_oneil'" in line
    expression = line.partition("nkeys_seed_str=")[2].partition(", inbox")[0]
    assert eval(expression, {"pathlib": pathlib}) == path.read_text().splitlines()[-1]


def test_a_user_without_nkeys_gets_a_password_in_a_file_and_never_on_the_screen(
    auth: Auth, folder: AuthFolder
) -> None:
    # when a user is added whose client knows no nkeys
    code, out, _ = auth("add-user", "acme", "bob", "--role", "editor", "--password")

    # then a random password is in a file of its own, and nowhere else
    path = folder.path / "keys" / "acme" / "bob.password"
    assert (code, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600)
    password = path.read_text().split()[-1]
    assert len(bytes.fromhex(password)) >= 16
    assert Access(password_file=str(path)).password() == password
    others = [each for each in folder.path.rglob("*") if each.is_file() and each != path]
    assert not [each for each in others if password in each.read_text()]
    assert password not in out

    # and what is printed lets each program in, with the name that the server knows
    assert "NODEPOOL_URL=nats://acme.bob@127.0.0.1:4222 NODEPOOL_ORG=acme" in out
    assert f"NODEPOOL_PASSWORD_FILE={path} nodepool get np\n" in out
    assert f'NATS_USER=acme.bob NATS_PASSWORD="$(tail -n 1 {path})" nats --server' in out
    expression = out.partition("user='acme.bob', password=")[2].partition(", inbox")[0]
    assert eval(expression, {"pathlib": pathlib}) == password


def test_a_password_is_rotated_listed_and_revoked_as_a_key_is(
    auth: Auth, folder: AuthFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a user with a password
    auth("add-user", "acme", "bob", "--role", "editor", "--password")
    path = folder.path / "keys" / "acme" / "bob.password"
    before, accounts = path.read_text(), folder.accounts_file.read_text()

    # when it is rotated
    code, out, _ = auth("rotate", "acme", "bob")

    # then the file has another password, which the accounts know
    assert (code, out.splitlines()[0]) == (4, f"user/acme/bob rotated: {path}")
    assert path.read_text() != before
    assert folder.accounts_file.read_text() != accounts

    # and the user is listed, and asked about by name and by what is in use
    rows = [line.split() for line in auth("list", "acme", "--no-headers")[1].splitlines()]
    assert ["acme", "bob", "editor", "<none>", "<password>", str(path)] in rows
    monkeypatch.setenv("NODEPOOL_PASSWORD_FILE", str(path))
    for who in ((), ("--as", "acme/bob")):
        assert auth("can-i", "scale", "np", *who)[:2] == (0, "yes\n")
        assert auth("can-i", "delete", "np", *who)[0] == 1

    # and once revoked it is gone, also for a copy of it
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    monkeypatch.setenv("NODEPOOL_PASSWORD_FILE", str(copy))
    assert auth("revoke", "acme", "bob")[0] == 4
    assert not path.exists()
    assert "acme has no user bob" in auth("can-i", "scale", "np")[2]


def test_an_agent_has_a_name_that_can_be_chosen(auth: Auth) -> None:
    users = auth("list", "acme", "--no-headers")[1].splitlines()
    assert [line.split()[1:4] for line in users] == [
        ["agent-prod_v1", "agent", "prod.v1"],
        ["alice", "editor", "<none>"],
        ["vera", "viewer", "<none>"],
    ]

    code, out, _ = auth("add-agent", "acme", "test", "--name", "kube")

    assert (code, out.splitlines()[0]) == (0, "user/acme/kube created: agent of test")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("add-organisation acme", 1, "there is an organisation acme already"),
        ("add-organisation Fleet_1", 1, "organisation: "),
        ("add-user umbra bob --role viewer", 1, "no organisation umbra (known: acme); add it"),
        ("add-user acme alice --role owner", 1, "acme has a user alice already; choose another"),
        ("add-user acme a/b --role owner", 1, "'a/b' is not the name of a user"),
        ("add-user acme bob --role king", 2, "'viewer', 'editor', 'owner'"),
        ("add-user acme bob --role operator", 2, "'viewer', 'editor', 'owner'"),
        ("add-agent acme A! --name a", 1, "cluster of a: "),
        ("rotate acme bob", 1, "acme has no user bob (known: agent-prod_v1, alice, vera)"),
        ("rotate nobody", 1, "the platform has no user nobody"),
        ("rotate --all umbra", 1, "no organisation umbra"),
        ("rotate a b c", 2, "write NAME for a user of the platform, or ORG NAME"),
        ("revoke quota", 1, "the platform needs quota; give it a new key instead"),
        ("revoke acme/bob", 1, "acme has no user bob"),
        ("list umbra", 1, "no organisation umbra"),
        ("can-i fly nodepool --as acme/alice", 2, "no command is 'fly nodepool'"),
        ("can-i get np --as acme/bob", 1, "acme has no user bob"),
        ("can-i get np --as bob", 1, "the platform has no user bob; name others as ORG/NAME"),
        ("can-i get np", 1, "no credentials are in use: set NODEPOOL_NKEY_FILE, or"),
        ("init --signal-pid 4194304999", 1, "cannot make process 4194304999 read its accounts"),
    ],
)
def test_wrong_input_names_the_fault_and_changes_no_user(
    auth: Auth, folder: AuthFolder, words: str, code: int, message: str
) -> None:
    before = folder.users_file.read_bytes()

    found, out, err = auth(*words.split())

    assert (found, message in err) == (code, True), err
    assert "Traceback" not in err
    assert folder.users_file.read_bytes() == before
    assert "yes" not in out


def test_a_broken_document_is_named_by_every_verb(auth: Auth, folder: AuthFolder) -> None:
    folder.users_file.write_text("{")

    for words in ("init", "list", "rotate --all", "add-organisation umbra", "revoke acme alice"):
        code, _, err = auth(*words.split())
        assert (code, "users.json cannot be used" in err) == (1, True), words


def test_a_folder_that_is_not_there_or_cannot_be_made_is_named(
    auth: Auth, folder: AuthFolder, tmp_path: Path
) -> None:
    nowhere, below_a_file = tmp_path / "nowhere", folder.users_file / "auth"

    assert "make them with 'nodepool auth init'" in auth("list", "--dir", str(nowhere))[2]
    assert f"cannot write {below_a_file}" in auth("init", "--dir", str(below_a_file))[2]
    assert not nowhere.exists()


@pytest.mark.parametrize(
    ("user", "may", "may_not"),
    [
        (
            "acme/alice",
            (
                *("scale np", "apply nodepool", "drain node/g1", "get nodepools", "ack node"),
                *("send ScaleNodePool", "publish np.cmd.acme.prod.train.ScaleNodePool"),
            ),
            (
                *("delete np", "preempt node", "set quota", "add machines", "send SetQuota"),
                *("register cluster", "get machines", "subscribe np.evt.*.umbra.*.*.*"),
            ),
        ),
        (
            "acme/vera",
            ("get np", "describe no", "find capacity", "subscribe np.evt.*.acme.*.*.*"),
            ("scale np", "create nodepool", "publish np.cmd.acme.prod.train.ScaleNodePool"),
        ),
        (
            "acme/agent-prod_v1",
            ("register cluster", "apply np", "publish np.cmd.acme.prod~v1.train.ApplyNodePool"),
            ("scale np", "publish np.cmd.acme.test.train.ApplyNodePool"),
        ),
        ("operator", ("set quota", "add machine", "get machines", "send PreemptNode"), ()),
        (
            "quota",
            ("publish np.commit.quota",),
            ("publish np.commit.capacity", "set quota", "get np", "subscribe np.>"),
        ),
        ("feed", ("publish $JS.API.STREAM.INFO.NODEPOOL",), ("publish np.commit.quota",)),
        ("system", ("subscribe $SYS.>",), ("scale np",)),
    ],
)
def test_who_may_do_what_is_answered_with_an_exit_code(
    auth: Auth, user: str, may: tuple[str, ...], may_not: tuple[str, ...]
) -> None:
    for words in may:
        assert auth("can-i", *words.split(), "--as", user) == (0, "yes\n", ""), words
    for words in may_not:
        code, out, _ = auth("can-i", *words.split(), "--as", user)
        assert (code, out[:4]) == (1, "no: "), words


def test_the_credentials_in_use_say_who_asks(
    auth: Auth, folder: AuthFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given the credentials of an editor
    monkeypatch.setenv("NODEPOOL_NKEY_FILE", str(folder.key_file("alice", "acme")))

    # then the answer is about the editor, also where the folder is not
    for place in ((), ("--dir", str(tmp_path / "nowhere"))):
        assert auth("can-i", "scale", "np", *place)[:2] == (0, "yes\n")
        assert auth("can-i", "delete", "np", *place)[0] == 1

    # and a key that nobody has is named
    other = tmp_path / "other.nk"
    other.write_text(folder.key_file("alice", "acme").read_text().split()[-1])
    auth("rotate", "acme", "alice")
    monkeypatch.setenv("NODEPOOL_NKEY_FILE", str(other))
    assert f"does not know the key in {other}" in auth("can-i", "scale", "np")[2]


def test_every_key_is_rotated_at_once(auth: Auth, folder: AuthFolder) -> None:
    def keys() -> set[str]:
        return {line.split()[4] for line in auth("list", "--no-headers")[1].splitlines()}

    before = keys()

    code, out, _ = auth("rotate", "--all")

    assert code == 4
    assert not before & keys()
    assert len(out.splitlines()) == len(before)


@pytest.mark.parametrize("words", ["rotate acme alice", "revoke acme alice", "rotate --all"])
def test_what_takes_access_away_is_no_success_while_no_server_knows_of_it(
    auth: Auth, folder: AuthFolder, words: str
) -> None:
    # given identities of which no running server is found
    before = folder.users_file.read_bytes()

    # when access is taken away
    code, out, err = auth(*words.split())

    # then that is done in the folder, and the exit code and the last line say that it is not enough
    assert folder.users_file.read_bytes() != before
    assert "rotated" in out or "revoked" in out
    assert code == 4
    assert "error: the old credentials work until the server has read" in err
    assert "'kill -HUP PID'" in err

    # and with the server it is a success, while giving access needs none
    handler = signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        assert auth("rotate", "acme", "vera", "--signal-pid", str(os.getpid()))[0] == 0
    finally:
        signal.signal(signal.SIGHUP, handler)
    assert auth("add-user", "acme", "carol", "--role", "viewer")[0] == 0


def test_a_process_that_is_named_gets_the_signal(auth: Auth) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _: heard.append(number))
    try:
        code, out, _ = auth("init", "--signal-pid", str(os.getpid()))
    finally:
        signal.signal(signal.SIGHUP, before)

    assert (code, set(heard)) == (0, {signal.SIGHUP})
    assert f"process {os.getpid()}" in out


def test_a_shell_completes_organisations_and_users(auth: Auth) -> None:
    assert auth("add-organisation", "umbra")[0] == 0

    assert completions(cli, ["auth", "add-user"], "a") == ["acme"]
    assert completions(cli, ["auth", "rotate"], "ac") == ["acme"]
    assert completions(cli, ["auth", "rotate"], "qu") == ["quota"]
    assert completions(cli, ["auth", "revoke", "acme"], "al") == ["alice"]
    assert completions(cli, ["auth", "can-i", "get", "np", "--as"], "acme/v") == ["acme/vera"]
    assert completions(cli, ["auth", "init", "--dir"], "x") == [":files"]


def test_the_document_has_no_secret(auth: Auth, folder: AuthFolder) -> None:
    text = json.dumps(json.loads(folder.users_file.read_text()))

    for path in (folder.path / "keys").rglob("*.nk"):
        assert path.read_text().split()[-1] not in text


def test_each_program_has_a_secret_of_its_own_and_the_operator_has_none(
    auth: Auth, folder: AuthFolder
) -> None:
    code, printed, _ = auth("secrets", "--namespace", "control-plane")

    secrets = {each["metadata"]["name"]: each for each in json.loads(printed)["items"]}
    assert code == 0
    assert {each["metadata"]["namespace"] for each in secrets.values()} == {"control-plane"}
    assert [*secrets["nodepool-accounts"]["data"]] == ["accounts.conf"]
    assert [*secrets["nodepool-members"]["data"]] == ["members.json"]
    key = base64.b64decode(secrets["nodepool-key-quota"]["data"]["quota.nk"])
    assert key == folder.key_file("quota").read_bytes()
    assert not any("operator" in name or "alice" in name for name in secrets)


def test_a_secret_without_its_file_is_named_with_what_makes_it(
    auth: Auth, folder: AuthFolder
) -> None:
    folder.key_file("quota").unlink()

    code, printed, told = auth("secrets")

    assert (code, printed) == (1, "")
    assert str(folder.key_file("quota")) in told
    assert "nodepool auth init" in told
