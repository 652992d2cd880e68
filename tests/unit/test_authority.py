"""The authority of an installation: what it signs, and what it leaves as it is."""

import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509

from nodepool.local import authority
from nodepool.local.authority import renew
from nodepool.local.errors import ServerError
from nodepool.local.listening import Certificate, Listening

NAMES = ("localhost", "127.0.0.1", "::1")


def files(folder: Path) -> Certificate:
    return Certificate(folder / "ca.pem", folder / "server.pem", folder / "server.key")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(made: Certificate) -> Sequence[str]:
    certificate = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    known = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in known]


def test_a_certificate_that_is_good_is_kept(tmp_path: Path) -> None:
    made = files(tmp_path)
    renew(made, NAMES)
    before = contents(tmp_path)

    renew(made, NAMES[:2])

    assert contents(tmp_path) == before
    assert names(made) == list(NAMES)


def test_another_name_or_a_near_end_makes_a_new_certificate_of_the_same_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a certificate that ends soon
    made = files(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(authority, "SERVER_DAYS", 30)
        renew(made, NAMES)
    before = contents(tmp_path)

    # when the server starts, and when it starts with another name
    renew(made, NAMES)
    renewed = contents(tmp_path)
    renew(made, (*NAMES, "bus.example.com"))

    # then there is a new one each time, and clients trust what they trusted before
    assert len({each["server.pem"] for each in (before, renewed, contents(tmp_path))}) == 3
    assert "bus.example.com" in names(made)
    for name in ("ca.pem", "ca.key"):
        assert contents(tmp_path)[name] == before[name]


def test_certificates_of_another_authority_are_left_alone(tmp_path: Path) -> None:
    # given certificates that somebody has put there, without the key of their authority
    made = files(tmp_path)
    renew(made, NAMES)
    (tmp_path / "ca.key").unlink()
    before = contents(tmp_path)

    renew(made, ("bus.example.com",))

    assert contents(tmp_path) == before


def is_trusted(made: Certificate) -> bool:
    """Whether a client that trusts the authority completes a handshake with the server."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.certificate, made.key)
    client = ssl.create_default_context(cafile=str(made.authority))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(back, there, server_hostname=NAMES[0]),
        server.wrap_bio(there, back, server_side=True),
    )
    done = set[int]()
    for _ in range(4):
        for number, side in enumerate(sides):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
                done.add(number)
    return len(done) == len(sides)


def stop_after(writes: int, made: Certificate, names: Sequence[str]) -> bool:
    """Renew, and end as a crash does after so many files; return whether that was too early."""
    left, replace = iter(range(writes)), Path.replace

    def replace_or_stop(path: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return replace(path, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", replace_or_stop)
        try:
            renew(made, names)
        except KeyboardInterrupt:
            return True
    return False


@pytest.mark.parametrize(
    ("lost", "names"),
    [
        (("ca.key", "ca.pem", "server.key", "server.pem"), NAMES),
        (("ca.pem",), NAMES),
        (("ca.pem", "server.pem"), NAMES),
        (("ca.key", "ca.pem", "server.pem"), NAMES),
        (("server.key",), NAMES),
        ((), (*NAMES, "bus.example.com")),
    ],
)
def test_a_start_after_a_crash_at_any_point_shows_what_clients_trust(
    tmp_path: Path, lost: Sequence[str], names: Sequence[str]
) -> None:
    is_early, writes = True, 0
    while is_early:
        # given a folder in which some files are missing, or a name
        made = files(tmp_path / str(writes))
        renew(made, NAMES)
        trusted = contents(made.key.parent)["ca.pem"]
        for name in lost:
            (made.key.parent / name).unlink()

        # when a start that makes them stops after each number of files, and the next one does not
        is_early = stop_after(writes, made, names)
        renew(made, NAMES)

        # then clients trust what the server shows
        assert is_trusted(made), f"after {writes} files"
        # and those of before too, if their authority was not lost
        assert "ca.pem" in lost or contents(made.key.parent)["ca.pem"] == trusted
        writes += 1
    assert writes > 1


@pytest.mark.parametrize(
    ("missing", "cause"),
    [
        (("ca.key", "server.pem"), "has ca.pem, and neither ca.key nor server.pem"),
        (("ca.key", "ca.pem"), "has server.pem, and neither ca.key nor ca.pem"),
        (("ca.key", "server.key"), "has server.pem, and neither ca.key nor server.key"),
    ],
)
def test_what_is_missing_of_certificates_from_elsewhere_is_named(
    tmp_path: Path, missing: Sequence[str], cause: str
) -> None:
    made = files(tmp_path)
    renew(made, NAMES)
    for name in missing:
        (tmp_path / name).unlink()
    before = contents(tmp_path)

    with pytest.raises(ServerError) as error:
        renew(made, NAMES)

    assert str(error.value).startswith(f"{tmp_path} {cause}: restore")
    assert contents(tmp_path) == before


def test_an_authority_whose_key_is_that_of_another_one_is_refused(tmp_path: Path) -> None:
    # given a folder into which somebody has put another authority, beside the key of the first
    made, other = files(tmp_path / "own"), files(tmp_path / "other")
    for each in (made, other):
        renew(each, NAMES)
    made.authority.write_bytes(other.authority.read_bytes())

    # when the server starts, then both files are named, and nothing changes
    before = contents(tmp_path / "own")
    with pytest.raises(ServerError, match=r"ca.key is not the key of ca.pem: restore"):
        renew(made, NAMES)
    assert contents(tmp_path / "own") == before


@pytest.mark.parametrize("name", ["ca.key", "ca.pem", "server.pem"])
def test_a_file_that_is_broken_is_named_and_not_shown(tmp_path: Path, name: str) -> None:
    made = files(tmp_path)
    renew(made, NAMES)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:90])

    with pytest.raises(ServerError) as error:
        renew(made, ("bus.example.com",))

    assert str(error.value) == (
        f"the certificates in {tmp_path} cannot be read:"
        " restore them, or remove the folder to make new ones"
    )


@pytest.mark.parametrize(
    ("host", "is_local", "url"),
    [
        ("127.0.0.1", True, "nats://127.0.0.1:1"),
        ("127.0.0.9", True, "nats://127.0.0.9:1"),
        ("localhost", True, "nats://localhost:1"),
        ("::1", True, "nats://[::1]:1"),
        ("0.0.0.0", False, "tls://127.0.0.1:1"),
        ("::", False, "tls://[::1]:1"),
        ("10.0.0.5", False, "tls://10.0.0.5:1"),
        ("bus.example.com", False, "tls://bus.example.com:1"),
    ],
)
def test_whatever_others_can_reach_is_encrypted(
    tmp_path: Path, host: str, is_local: bool, url: str
) -> None:
    listening = Listening(1, host).encrypted(tmp_path / "tls")

    assert (listening.is_local, listening.url) == (is_local, url)
    assert (listening.certificate is None) is is_local
