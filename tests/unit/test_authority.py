"""The authority of an installation: what it signs, and what it leaves as it is."""

from collections.abc import Sequence
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
