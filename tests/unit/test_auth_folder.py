"""The folder of identities: what is made in it, and what a broken one says."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodepool.auth.accounts import GATEWAY, OPERATOR, PLATFORM_USERS, SYSTEM_USER
from nodepool.auth.folder import AuthFolder
from nodepool.auth.users import AuthError, Users, new_member, users_in, users_text
from nodepool.contract.actors import members_in

pytest.importorskip("nacl", reason="needs the package PyNaCl")


@pytest.fixture
def folder(tmp_path: Path) -> AuthFolder:
    """A folder with the users of the platform and an organisation."""
    folder = AuthFolder(tmp_path / "auth")
    folder.init()
    folder.change(lambda users: users.with_organisation("acme"))
    return folder


def add(folder: AuthFolder, name: str, role: str = "editor", cluster: str = "") -> None:
    """Add a user to the organisation."""
    folder.add_member("acme", lambda key: new_member(name, key, role, cluster))


def key_of(folder: AuthFolder, user: str, org: str = "") -> str:
    """The public key of what the credentials file of a user has."""
    return folder.access(user, org).key_pair().public_key


def test_every_user_of_the_platform_gets_credentials_that_only_their_owner_can_read(
    tmp_path: Path,
) -> None:
    # given a folder that is not there yet
    folder = AuthFolder(tmp_path / "new" / "auth")

    # when it is made
    assert folder.init()

    # then each user has a seed, which the accounts know by its public key
    accounts = folder.accounts_file.read_text()
    for name in (*PLATFORM_USERS, SYSTEM_USER):
        assert f"nkey: {key_of(folder, name)}  # {name}\n" in accounts
        assert folder.access(name).reply_prefix() == f"_INBOX_{name}"

    # and nobody else can read any file
    paths = [folder.path, *folder.path.rglob("*")]
    assert not [path for path in paths if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]


def test_what_is_there_is_kept_and_what_is_missing_is_made_again(folder: AuthFolder) -> None:
    # given a folder that is complete
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}

    # when it is made again
    # then nothing changes
    assert not folder.init()
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}

    # and of what is lost, a key is a new one, and a file that follows from the source is the same
    gateway, operator = key_of(folder, GATEWAY), key_of(folder, OPERATOR)
    folder.key_file(GATEWAY).unlink()
    folder.members_file.unlink()
    assert folder.init()
    assert key_of(folder, GATEWAY) != gateway
    assert key_of(folder, OPERATOR) == operator
    assert folder.members_file.read_bytes() == before[folder.members_file]


def test_accounts_of_another_program_are_written_again(folder: AuthFolder) -> None:
    # given accounts that another version has written
    text = folder.accounts_file.read_text()
    folder.accounts_file.write_text(text.replace("# State: ", "# State: 0"))

    # when the folder is made again
    # then they are the accounts of this version
    assert folder.init()
    assert folder.accounts_file.read_text() == text


def test_a_user_of_an_organisation_has_credentials_a_role_and_the_rights_of_it(
    folder: AuthFolder,
) -> None:
    # when an editor and an agent are added
    add(folder, "alice")
    add(folder, "agent-prod", "agent", "prod")

    # then their credentials say who they are
    first = folder.key_file("alice", "acme").read_text().splitlines()
    assert first[:2] == ["# acme/alice, editor", "# inbox prefix: _INBOX_alice"]
    second = folder.key_file("agent-prod", "acme").read_text().splitlines()
    assert second[0] == "# acme/agent-prod, agent of prod"

    # and the server and the gateway know them
    for name, role in (("alice", "editor"), ("agent-prod", "agent")):
        key = key_of(folder, name, "acme")
        assert f"nkey: {key}  # {name}\n" in folder.accounts_file.read_text()
        assert members_in(folder.members_file.read_text())["acme", key].role == role

    # and no file but the credentials has a seed
    others = [folder.users_file, folder.accounts_file, folder.members_file]
    assert not [path for path in others if first[2] in path.read_text()]


@pytest.mark.parametrize(("org", "name"), [("acme", "alice"), ("", "quota"), ("", SYSTEM_USER)])
def test_a_rotated_key_is_known_and_the_one_before_is_not(
    folder: AuthFolder, org: str, name: str
) -> None:
    add(folder, "alice")
    before = key_of(folder, name, org)

    folder.rotate((org, name))

    after = key_of(folder, name, org)
    assert after != before
    for path in (folder.users_file, folder.accounts_file):
        assert after in path.read_text()
        assert before not in path.read_text()


def test_a_user_that_is_revoked_is_nowhere(folder: AuthFolder) -> None:
    add(folder, "alice")
    key = key_of(folder, "alice", "acme")

    folder.revoke("alice", "acme")

    assert not folder.key_file("alice", "acme").exists()
    paths = [path for path in folder.path.rglob("*") if path.is_file()]
    assert not [path for path in paths if key in path.read_text()]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: folder.rotate(("umbra", "alice")), "no organisation umbra (known: acme)"),
        (
            lambda folder: folder.rotate(("", "quota"), ("acme", "bob")),
            "acme has no user bob (known: alice)",
        ),
        (lambda folder: folder.revoke("bob", "acme"), "acme has no user bob (known: alice)"),
        (
            lambda folder: folder.rotate(("", "alice")),
            "the platform has no user alice (known: validator",
        ),
        (lambda folder: add(folder, "alice"), "acme has a user alice already"),
        (lambda folder: add(folder, "bob", "king"), "'king' is no role; choose one of viewer"),
        (lambda folder: add(folder, "bob", "operator"), "'operator' is no role"),
        (lambda folder: add(folder, "../bob"), "'../bob' is not the name of a user"),
        (lambda folder: add(folder, "bob", "agent", "A b"), "cluster of bob: "),
        (lambda folder: folder.change(lambda users: users.with_organisation("acme")), "already"),
        (
            lambda folder: folder.change(lambda users: users.with_organisation("A.b")),
            "organisation",
        ),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    folder: AuthFolder, change: Callable[[AuthFolder], object], message: str
) -> None:
    add(folder, "alice")
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}

    with pytest.raises(AuthError) as error:
        change(folder)

    assert message in str(error.value)
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 2}',
        '{"version": 1, "users": {}}',
        '{"version": 1, "platform": []}',
        '{"version": 1, "platform": {"stranger": {"key": ""}}}',
        '{"version": 1, "platform": {"quota": {"key": "U"}}}',
        '{"version": 1, "platform": {"quota": 1}}',
        '{"version": 1, "organisations": {"acme": {"a": {"role": "editor"}}}}',
        '{"version": 1, "organisations": {"acme": {}, "acme": {}}}',
        '{"version": 1, "organisations": {"A.b": {}}}',
        f'{{"version": 1, "organisations": {"[" * 100_000}',
    ],
)
def test_a_broken_document_is_named_and_stays_as_it_is(folder: AuthFolder, text: str) -> None:
    folder.users_file.write_text(text)

    for change in (folder.init, folder.users, lambda: add(folder, "bob")):
        with pytest.raises(AuthError, match=r"users\.json cannot be used: .*restore it"):
            change()

    assert folder.users_file.read_text() == text


def test_a_lost_document_is_not_replaced_by_an_empty_one(folder: AuthFolder) -> None:
    folder.users_file.unlink()

    with pytest.raises(AuthError, match="restore the missing file, or remove the folder"):
        folder.init()


def test_a_damaged_seed_of_the_platform_is_named(folder: AuthFolder) -> None:
    folder.key_file(GATEWAY).write_text("# gateway\nSUB\n")

    with pytest.raises(AuthError, match=r"credentials of gateway: .*remove it to get a new key"):
        folder.init()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(AuthError, match=r"cannot write .*/auth: Not a dir.*choose"):
        AuthFolder(tmp_path / "file" / "auth").init()


def test_what_cannot_be_stored_as_a_whole_changes_nothing(folder: AuthFolder) -> None:
    # given a folder in which the last of the files cannot be written
    add(folder, "alice")
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    blocked = folder.accounts_file.with_name(".accounts.conf.new")
    blocked.mkdir()

    # when keys are rotated
    with pytest.raises(AuthError, match="cannot write"):
        folder.rotate(("acme", "alice"), ("", "quota"))

    # then every file is as it was
    blocked.rmdir()
    assert before == {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}


def test_two_programs_at_once_both_change_the_folder(folder: AuthFolder) -> None:
    # given several programs that each add a user
    program = (
        "import sys; from pathlib import Path; from nodepool.auth.folder import AuthFolder\n"
        "from nodepool.auth.users import new_member\n"
        "AuthFolder(Path(sys.argv[1])).add_member('acme',"
        " lambda key: new_member(sys.argv[2], key, 'viewer'))"
    )
    names = ["a", "b", "c"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    # when they run at the same time
    programs = [
        subprocess.Popen([sys.executable, "-c", program, folder.path, name], env=environment)
        for name in names
    ]
    assert [each.wait(30) for each in programs] == [0] * len(names)

    # then each user is there
    assert [each.user.name for each in folder.users().organisation("acme").members] == names


def test_a_document_says_the_same_users_again(folder: AuthFolder) -> None:
    add(folder, "agent-prod", "agent", "prod")
    users = folder.users()

    assert users_in(users_text(users)) == users
    assert users_in('{"version": 1}') == Users()
