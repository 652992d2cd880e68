"""Files to connect with: which can be used, and what is said about those that cannot."""

import os
import time
from pathlib import Path

import pytest

from nodepool.host.settings import SettingsError, read
from nodepool.nats.wire.access import Access
from nodepool.nats.wire.errors import AccessError
from support.certificates import (
    Certificates,
    certificates,
    client_certificate,
    encrypt,
    needs_openssl,
)
from support.nats_users import credentials, jwt, key, user_jwt

YEAR_S = 365 * 86_400.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates that all tests share, of a server and of a client."""
    folder = tmp_path_factory.mktemp("certificates")
    made = certificates(folder)
    client_certificate(folder)
    return made


def fault(access: Access, now_s: float = 0.0) -> tuple[str, str]:
    """The field at fault, and what is wrong with it."""
    with pytest.raises(AccessError) as error:
        access.check(now_s or time.time())
    return error.value.field, str(error.value)


def written(path: Path, content: str) -> str:
    path.write_text(content)
    return str(path)


def test_an_inbox_prefix_is_the_beginning_of_a_subject() -> None:
    # given prefixes that can begin one
    # when they are checked
    # then they are taken
    for prefix in ("", "_INBOX", "_INBOX_agent-acme-prod", "_INBOX.acme"):
        Access(inbox_prefix=prefix).check(0)

    # and others, which a server would not take or would take for a pattern, are refused
    others = ("a b", "a.", ".a", "_INBOX.>", "a*", "a\n", "$JS")
    assert [fault(Access(inbox_prefix=prefix)) for prefix in others] == [
        ("inbox_prefix", f"{prefix!r} cannot begin a subject; write it as _INBOX_name")
        for prefix in others
    ]


@needs_openssl
def test_a_certificate_needs_a_key_that_fits(made: Certificates, tmp_path: Path) -> None:
    # given two certificates with their keys, and files of other kinds
    certificate, other = str(made.ca.with_name("client.pem")), str(made.key)
    own = str(made.ca.with_name("client.key"))
    text = written(tmp_path / "text", "no PEM")
    locked = tmp_path / "locked.key"
    encrypt(made.ca.with_name("client.key"), locked)
    cut = written(tmp_path / "cut.pem", Path(certificate).read_text().replace("M", "!"))
    both = written(tmp_path / "both", Path(certificate).read_text() + Path(own).read_text())

    # when a certificate is shown with each of them
    # then those that fit are taken
    Access(cert_file=certificate, key_file=own).check(time.time())
    Access(cert_file=both).check(time.time())

    # and what is wrong with the others is said
    assert [
        fault(Access(key_file=own)),
        fault(Access(cert_file=certificate)),
        fault(Access(cert_file=certificate, key_file=other)),
        fault(Access(cert_file=certificate, key_file=str(locked))),
        fault(Access(cert_file=certificate, key_file=text)),
        fault(Access(cert_file=text, key_file=own)),
        fault(Access(cert_file=cut, key_file=own)),
    ] == [
        ("cert_file", "the key needs its certificate; name the file of it"),
        ("key_file", f"{certificate} holds no private key; it must be one in PEM"),
        ("key_file", f"the key in {other} is not that of the certificate in {certificate}"),
        ("key_file", f"the key in {locked} has a passphrase; it must be stored without"),
        ("key_file", f"{text} holds no private key; it must be one in PEM"),
        ("cert_file", f"{text} holds no certificate; it must be one in PEM"),
        ("cert_file", f"{cut} and {own} cannot be used; they must be valid PEM"),
    ]


@needs_openssl
def test_an_expired_certificate_is_refused(made: Certificates) -> None:
    certificate = made.ca.with_name("client.pem")
    access = Access(cert_file=str(certificate), key_file=str(certificate.with_suffix(".key")))

    field, text = fault(access, time.time() + YEAR_S)

    assert field == "cert_file"
    assert text.startswith(f"{certificate} expired at 20")
    assert text.endswith("Z; it must be renewed")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    # given what is no file that can be read
    missing, pipe = tmp_path / "missing", tmp_path / "pipe"
    os.mkfifo(pipe)
    large = written(tmp_path / "large", "x" * 300_000)
    empty, two = written(tmp_path / "empty", " \n"), written(tmp_path / "two", "a\nb")

    # when a password is to be read from each
    # then what is wrong is said
    assert [
        fault(Access(password_file=str(path)))
        for path in (missing, tmp_path, pipe, large, empty, two, "a\0b")
    ] == [
        ("password_file", "cannot read the file that it names: No such file or directory"),
        ("password_file", f"cannot read {tmp_path}: Is a directory"),
        ("password_file", f"cannot read {pipe}: Is a named pipe and no file"),
        ("password_file", f"{large} has more than 256 KiB; it is another file"),
        ("password_file", f"{empty} is empty; it must hold one line"),
        ("password_file", f"{two} holds more than one line; it must hold one line"),
        ("password_file", "it is no path of a file"),
    ]


@pytest.mark.timeout(10)
def test_what_is_no_file_of_certificates_to_trust_is_refused(tmp_path: Path) -> None:
    # given a pipe, which has no end to read to, and others that hold no certificates
    missing, pipe = tmp_path / "missing", tmp_path / "pipe"
    os.mkfifo(pipe)
    text = written(tmp_path / "text", "no PEM")
    large = written(tmp_path / "large", "x" * 5_000_000)

    # when the certificates to trust are to be read from each
    # then what is wrong is said at once
    assert [
        fault(Access(ca_file=str(path))) for path in (missing, tmp_path, pipe, text, large, "a\0b")
    ] == [
        ("ca_file", f"cannot read {missing}: No such file or directory"),
        ("ca_file", f"cannot read {tmp_path}: Is a directory"),
        ("ca_file", f"cannot read {pipe}: Is a named pipe and no file"),
        ("ca_file", f"{text} holds no certificates; it must be a file of them in PEM"),
        ("ca_file", f"{large} has more than 4096 KiB; it is another file"),
        ("ca_file", "it is no path of a file"),
    ]


@needs_openssl
def test_a_file_of_many_certificates_to_trust_is_taken(made: Certificates, tmp_path: Path) -> None:
    # given a file that is as large as that of all public authorities, and has comments
    one = made.ca.read_text()
    many = written(tmp_path / "many", f"# Zürich\n{one}" * (300_000 // len(one)))

    # when it is to be trusted
    # then it is taken
    Access(ca_file=many).check(time.time())


def test_what_is_no_seed_of_a_user_is_refused(tmp_path: Path) -> None:
    # given seeds that lost an end, were changed or are of an account, and something else
    seed = key("user", 1).seed
    texts = [seed[:-3], seed[:20] + "B" + seed[21:], key("account").seed, "secret"]
    paths = [written(tmp_path / str(number), text) for number, text in enumerate(texts)]

    # when each is to be used
    # then what is wrong is said, without the secret
    assert [fault(Access(nkey_file=path)) for path in paths] == [
        ("nkey_file", f"{paths[0]} holds no seed of an nkey; it must be one, which begins with SU"),
        ("nkey_file", f"the seed in {paths[1]} is damaged; it must be copied whole"),
        ("nkey_file", f"the seed in {paths[2]} is not that of a user; it must begin with SU"),
        ("nkey_file", f"{paths[3]} holds no seed of an nkey; it must be one, which begins with SU"),
    ]


def test_the_seed_may_stand_below_comments_one_of_which_names_the_prefix_of_replies(
    tmp_path: Path,
) -> None:
    pytest.importorskip("nacl", reason="needs the package PyNaCl")
    # given the file of a seed with comments
    comments = "# acme/alice, editor\n# inbox prefix: _INBOX_alice\n"
    path = written(tmp_path / "alice.nk", f"{comments}{key('user').seed}\n")

    # then the seed is used, and replies have the prefix, unless a setting has another one
    access = Access(nkey_file=path)
    access.check(0)
    assert access.key_pair().public_key == key("user").public
    assert access.reply_prefix() == "_INBOX_alice"
    assert Access(nkey_file=path, inbox_prefix="_INBOX_x").reply_prefix() == "_INBOX_x"
    assert Access().reply_prefix() == "_INBOX"

    # and a prefix that is none, no seed, and two of them are refused
    bad = ("# inbox prefix: a.>\n" + key("user").seed, comments, f"{key('user').seed}\nx\n")
    paths = [written(tmp_path / str(number), text) for number, text in enumerate(bad)]
    assert [fault(Access(nkey_file=path)) for path in paths] == [
        (
            "nkey_file",
            f"the inbox prefix in {paths[0]} cannot begin a subject; write it as _INBOX_name",
        ),
        (
            "nkey_file",
            f"{paths[1]} holds no seed; it must hold one line with a seed, which begins with SU",
        ),
        (
            "nkey_file",
            f"{paths[2]} holds more than one line; it must hold one line with a seed, which"
            " begins with SU",
        ),
    ]


def test_credentials_need_a_valid_jwt_and_its_seed(tmp_path: Path) -> None:
    pytest.importorskip("nacl", reason="needs the package PyNaCl")
    # given credentials of which a part is missing, is of another user, or is over
    user, other = key("user", 1), key("user", 2)
    token = user_jwt(user, expires=1000)
    whole = credentials(user, token)
    texts = [
        "",
        whole.replace("NATS USER JWT", "X"),
        whole.replace("USER NKEY SEED", "X"),
        credentials(user, "a.b.c"),
        credentials(user, jwt(key("account"), user, {}, 10**30)),
        credentials(other, token),
    ]
    paths = [written(tmp_path / str(number), text) for number, text in enumerate(texts)]
    good = written(tmp_path / "good", whole)

    # when each is to be used
    # then the whole ones are taken in their time
    Access(creds_file=good).check(999)

    # and what is wrong with the others is said
    assert [fault(Access(creds_file=path), 999) for path in paths] == [
        ("creds_file", f"{paths[0]} holds no JWT of a user; nsc writes one there"),
        ("creds_file", f"{paths[1]} holds no JWT of a user; nsc writes one there"),
        ("creds_file", f"{paths[2]} holds no seed of an nkey; nsc writes one there"),
        ("creds_file", f"the JWT in {paths[3]} cannot be read; nsc writes it"),
        ("creds_file", f"the JWT in {paths[4]} cannot be read; nsc writes it"),
        ("creds_file", f"the seed in {paths[5]} is not that of the JWT beside it"),
    ]
    assert fault(Access(creds_file=good), 1000) == (
        "creds_file",
        f"the JWT in {good} expired at 1970-01-01T00:16:40Z; it must be renewed",
    )


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (
            "nats://user:secret@a:1",
            "the address holds a password too; write it as nats://USER@HOST:PORT",
        ),
        (
            "nats://user@a:1,nats://b:1",
            "the addresses name different users; name the same one in each",
        ),
    ],
)
def test_a_password_that_stands_in_the_address_too_is_refused(
    tmp_path: Path, url: str, text: str
) -> None:
    path = written(tmp_path / "password", "secret")

    with pytest.raises(SettingsError) as error:
        read({"NODEPOOL_URL": url, "NODEPOOL_PASSWORD_FILE": path})

    assert str(error.value) == f"NODEPOOL_PASSWORD_FILE: {text}"


def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "seed", "secret")

    with pytest.raises(SettingsError) as error:
        read({"NODEPOOL_NKEY_FILE": path, "NODEPOOL_CREDS_FILE": path})

    assert str(error.value) == (
        "NODEPOOL_NKEY_FILE: credentials hold an nkey already; name one of the two"
    )
