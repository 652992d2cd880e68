"""Who may read the metrics of a service: with TLS and a token, which a probe needs for nothing."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path

import pytest
import yaml

from nodepool.host.check import obstacle
from nodepool.host.health import HealthServer
from nodepool.host.protection import Protection
from nodepool.host.settings import SettingsError, read
from nodepool.local.monitoring import write_prometheus_config
from support.certificates import Certificates, certificates, client_certificate, needs_openssl
from unit.test_health import PATIENCE_S, page, request

TOKEN = "a-token-of-its-own"
METRICS = [b"nodepool_up 1\n"]
pytestmark = needs_openssl


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def serving(**files: Path) -> Iterator[int]:
    """The port of a service whose metrics are protected with these files."""
    named = {f"NODEPOOL_METRICS_{name.upper()}_FILE": str(path) for name, path in files.items()}
    settings = read({"NODEPOOL_METRICS_PORT": "0", **named})
    server = HealthServer(settings, lambda _: METRICS, lambda: None)
    try:
        yield server.port
    finally:
        server.close()


def secure_page(port: int, path: str, made: Certificates, **headers: str) -> tuple[int, bytes]:
    """The status and content of a page over HTTPS, from a server whose certificate is checked."""
    context = ssl.create_default_context(cafile=str(made.ca))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    connection = HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=context)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def shown(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_metrics_need_tls_and_the_token_and_probes_need_neither(
    made: Certificates, tmp_path: Path
) -> None:
    # given a service with a certificate and a token
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    with serving(cert=made.certificate, key=made.key, token=token) as port:
        # when its metrics are read with both, then they are there
        assert secure_page(port, "/metrics", made, **shown(TOKEN)) == (200, METRICS[0])

        # and without TLS, without a token or with another one they are not
        assert request(port, "/metrics", **shown(TOKEN))[::2] == (403, b"use https\n")
        for headers in ({}, shown(""), shown(TOKEN[:-1]), {"Authorization": f"Basic {TOKEN}"}):
            status, content = secure_page(port, "/metrics", made, **headers)
            assert (status, METRICS[0] in content, TOKEN in content.decode()) == (401, False, False)

        # and a probe has its page with and without TLS
        for path in ("/livez", "/readyz"):
            assert page(port, path) == (200, "ok\n")
            assert secure_page(port, path, made) == (200, b"ok\n")
        assert obstacle({"NODEPOOL_METRICS_PORT": str(port)}) is None


def test_a_token_works_without_tls_and_is_read_again(tmp_path: Path) -> None:
    # given a service with a token alone, which says how to show it
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with serving(token=token) as port:
        status, headers, _ = request(port, "/metrics")
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert request(port, "/metrics", **shown(TOKEN))[0] == 200

        # when another one is written, then that one counts
        token.write_text("another")
        assert request(port, "/metrics", **shown(TOKEN))[0] == 401
        assert request(port, "/metrics", **shown("another"))[0] == 200

        # and without the file nobody has the metrics
        token.unlink()
        assert request(port, "/metrics", **shown("another"))[0] == 401


def test_a_renewed_certificate_is_shown_without_a_restart(
    made: Certificates, tmp_path: Path
) -> None:
    # given a service with a certificate of an authority
    other = certificates(tmp_path)
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"

    def replace(path: Path, text: str) -> None:
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)

    replace(certificate, made.certificate.read_text())
    replace(key, made.key.read_text())
    with serving(cert=certificate, key=key) as port:
        assert secure_page(port, "/metrics", made)[0] == 200

        # when only the certificate is replaced, then the former one is shown
        replace(certificate, other.certificate.read_text())
        assert secure_page(port, "/metrics", made)[0] == 200

        # and once the key is there as well, the new one is
        replace(key, other.key.read_text())
        assert secure_page(port, "/metrics", other)[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            secure_page(port, "/metrics", made)


def test_files_that_cannot_be_used_are_refused_by_the_name_of_their_setting(
    made: Certificates, tmp_path: Path
) -> None:
    _, other = client_certificate(made.ca.parent)
    (tmp_path / "empty").touch()
    for files, text in (
        ({"KEY": made.key}, "CERT_FILE: the key needs its certificate; name the file of it"),
        ({"CERT": tmp_path / "none"}, f"CERT_FILE: cannot read {tmp_path}/none: No such file"),
        ({"CERT": made.certificate}, f"KEY_FILE: {made.certificate} holds no private key"),
        ({"CERT": made.certificate, "KEY": other}, f"KEY_FILE: the key in {other} is not that of"),
        ({"TOKEN": tmp_path / "empty"}, f"TOKEN_FILE: {tmp_path}/empty is empty"),
    ):
        with pytest.raises(SettingsError) as error:
            read({f"NODEPOOL_METRICS_{name}_FILE": str(path) for name, path in files.items()})
        assert str(error.value).startswith(f"NODEPOOL_METRICS_{text}")


def test_pages_are_served_to_this_machine_alone_unless_a_setting_says_otherwise() -> None:
    assert read({}).metrics_host == "127.0.0.1"


def test_the_prometheus_of_a_machine_shows_the_token_and_trusts_the_certificate(
    tmp_path: Path,
) -> None:
    # given files that protect the metrics
    protection = Protection("/own/tls.pem", "/own/tls.key", "/own/token")

    # when the configuration of a Prometheus is written
    write_prometheus_config(tmp_path, {"quota": 9464}, protection)

    # then it names what the reader needs, and no other file
    text = (tmp_path / "prometheus.yml").read_text()
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert (job["scheme"], job["tls_config"]) == ("https", {"ca_file": "/own/tls.pem"})
    assert job["authorization"] == {"credentials_file": "/own/token"}
    assert "tls.key" not in text
