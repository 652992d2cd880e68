"""Settings from the environment: what is read, and what is refused in one line."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nodepool.cli.settings import from_environment
from nodepool.host.settings import FIELDS, Settings, SettingsError, read
from nodepool.nats.wire.access import Access
from support.certificates import certificates, needs_openssl
from support.nats_users import key

FORM = "write it as nats://HOST:PORT"


def refusal(**environment: str) -> str:
    with pytest.raises(SettingsError) as error:
        read(environment)
    text = str(error.value)
    assert "\n" not in text
    return text


def started(**environment: str) -> "subprocess.CompletedProcess[str]":
    """The result of a service that was started in this environment and has ended."""
    base = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-m", "quota"],
        env={**base, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_an_empty_environment_gives_the_defaults() -> None:
    # given an environment without our variables
    # when it is read
    settings = read({"PATH": "/bin", "NODE": "x"})

    # then all is at its default
    assert settings == Settings()


@pytest.fixture
def files(tmp_path: Path) -> Access:
    """Files to connect with."""
    made, password = certificates(tmp_path), tmp_path / "password"
    password.write_text("secret\n")
    return Access(
        ca_file=str(made.ca),
        cert_file=str(made.certificate),
        key_file=str(made.key),
        password_file=str(password),
        inbox_prefix="_INBOX_quota",
    )


@needs_openssl
def test_every_setting_can_be_set(files: Access) -> None:
    # given a value for each
    environment = {
        "NODEPOOL_URL": "nats://bus:4222",
        "NODEPOOL_METRICS_HOST": "0.0.0.0",
        "NODEPOOL_METRICS_PORT": "9464",
        "NODEPOOL_METRICS_CERT_FILE": files.cert_file,
        "NODEPOOL_METRICS_KEY_FILE": files.key_file,
        "NODEPOOL_METRICS_TOKEN_FILE": files.password_file,
        "NODEPOOL_LOG_LEVEL": "debug",
        "NODEPOOL_LOG_FILE": "/tmp/quota.log",
        "NODEPOOL_TRACES": "otlp",
        "NODEPOOL_REPLICAS": "3",
        "NODEPOOL_SNAPSHOTS": "ignore",
        "NODEPOOL_MAX_FILE_STORE": "18GB",
        "NODEPOOL_STOP_WITH_PARENT": "yes",
        "NODEPOOL_DEPRECATED_CONDITIONS": "show",
        "NODEPOOL_HANG_SECONDS": "90",
        "NODEPOOL_ANSWER_MINUTES": "5",
        "NODEPOOL_SILENT_SECONDS": "20",
        "NODEPOOL_UNHEALTHY_SECONDS": "60",
        "NODEPOOL_REGISTRATION_FAILED_EVENT": "on",
        "NODEPOOL_RESERVED_TAINT": "on",
        "NODEPOOL_CA_FILE": files.ca_file,
        "NODEPOOL_CERT_FILE": files.cert_file,
        "NODEPOOL_KEY_FILE": files.key_file,
        "NODEPOOL_CREDS_FILE": "",
        "NODEPOOL_NKEY_FILE": "",
        "NODEPOOL_PASSWORD_FILE": files.password_file,
        "NODEPOOL_INBOX_PREFIX": files.inbox_prefix,
    }

    # when they are read
    settings = read(environment)

    # then each has its value, in its own type
    assert settings == Settings(
        url="nats://bus:4222",
        metrics_host="0.0.0.0",
        metrics_port=9464,
        metrics_cert_file=files.cert_file,
        metrics_key_file=files.key_file,
        metrics_token_file=files.password_file,
        log_level="debug",
        log_file="/tmp/quota.log",
        traces="otlp",
        replicas=3,
        snapshots="ignore",
        max_file_store=18 * 1024**3,
        stop_with_parent="yes",
        deprecated_conditions="show",
        hang_seconds=90,
        answer_minutes=5,
        silent_seconds=20,
        unhealthy_seconds=60,
        registration_failed_event="on",
        reserved_taint="on",
        access=files,
    )
    assert {name.removeprefix("NODEPOOL_").lower() for name in environment} == set(FIELDS)


@pytest.mark.parametrize(
    "name", ["nodepool", "nodepool-console", "nodepool-metrics", "nodepool-nats", "nodepool-url"]
)
def test_the_variables_of_kubernetes_for_a_service_of_any_name_are_ignored(name: str) -> None:
    # given the variables of a Pod beside a Service
    prefix = name.upper().replace("-", "_")
    environment = {
        f"{prefix}_SERVICE_HOST": "10.0.0.7",
        f"{prefix}_SERVICE_PORT": "80",
        f"{prefix}_SERVICE_PORT_HTTP": "80",
        f"{prefix}_PORT": "tcp://10.0.0.7:80",
        f"{prefix}_PORT_80_TCP": "tcp://10.0.0.7:80",
        f"{prefix}_PORT_80_TCP_PROTO": "tcp",
        f"{prefix}_PORT_80_TCP_PORT": "80",
        f"{prefix}_PORT_80_TCP_ADDR": "10.0.0.7",
    }

    # when a service and the command line read them
    # then all is at its default
    assert read(environment) == Settings()
    assert from_environment(environment) == from_environment({})


@pytest.mark.parametrize("name", ["ORG", "CLUSTER", "NATS_SERVER", "NATS_PORT", "DATA_DIR"])
def test_the_settings_of_the_command_line_are_ignored(name: str) -> None:
    # given a variable of the command line
    # when a service reads its settings
    # then it ignores that one
    assert read({f"NODEPOOL_{name}": "anything"}) == Settings()


def test_an_unknown_setting_is_refused_with_the_names_of_all_settings() -> None:
    # given a name that is like none of ours
    # when it is read
    text = refusal(NODEPOOL_COLOUR="red")

    # then the line names it, and every setting
    assert text.startswith("NODEPOOL_COLOUR is no setting; the settings are NODEPOOL_URL, ")
    assert all(f"NODEPOOL_{name.upper()}" in text for name in FIELDS)


def test_a_misspelt_setting_is_refused_with_the_name_that_was_meant() -> None:
    assert refusal(NODEPOOL_METRIC_PORT="9464") == (
        "NODEPOOL_METRIC_PORT is no setting; did you mean NODEPOOL_METRICS_PORT?"
    )


@pytest.mark.parametrize(
    "value", ["", " ", "nats://", "nats://host:99999", "nats://host:0", "http://host", "nats://a b"]
)
def test_what_is_no_address_of_a_server_is_refused(value: str) -> None:
    # given a value that no server can be reached by, on which a service would try for ever
    # when it is read
    # then the line says how an address is written
    assert refusal(NODEPOOL_URL=value) == (
        f"NODEPOOL_URL: {value!r} is not the address of a server; write it as nats://HOST:PORT"
    )


def test_a_refused_address_does_not_show_its_password() -> None:
    assert "secret" not in refusal(NODEPOOL_URL="nats://user:secret@host:99999")


def test_a_refused_address_among_several_does_not_show_their_passwords() -> None:
    text = refusal(NODEPOOL_URL="nats://user:sec,ret@a:1,nats://user:secret@b:x")
    assert text == "NODEPOOL_URL: address 1 is not the address of a server; " + FORM


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("nats://a:1,", ""),
        ("a:1,,b:1", ""),
        ("a:1,http://b", "http://b"),
        ("nats://a:1/path", "nats://a:1/path"),
        ("nats://a:1?x=1", "nats://a:1?x=1"),
        ("nats://a!b", "nats://a!b"),
        ("a\x00b", "a\x00b"),
        ("nats://a:1;nats://b:1", "nats://a:1;nats://b:1"),
    ],
)
def test_garbage_is_refused_wherever_it_stands(value: str, shown: str) -> None:
    text = refusal(NODEPOOL_URL=value)
    assert text == f"NODEPOOL_URL: {shown!r} is not the address of a server; {FORM}"


def test_addresses_of_the_web_stand_alone() -> None:
    text = refusal(NODEPOOL_URL="wss://a,tls://b")
    assert text.startswith("NODEPOOL_URL: ws:// and wss:// cannot stand beside other addresses")


@pytest.mark.parametrize(
    "value",
    [
        "host",
        "host:4222",
        "tls://u:p@host:1",
        "nats://[::1]:4222",
        "nats://a:1,nats://b:2, nats://c_d.e-f",
        "wss://host/path",
    ],
)
def test_every_way_to_write_an_address_is_taken(value: str) -> None:
    assert read({"NODEPOOL_URL": value}).url == value


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    # given a file that is not there, and one of something else
    missing, other = tmp_path / "missing.pem", tmp_path / "other.pem"
    other.write_text("no certificate")

    # when they are to be trusted
    # then the line says what is wrong
    assert refusal(NODEPOOL_CA_FILE=str(missing)) == (
        f"NODEPOOL_CA_FILE: cannot read {missing}: No such file or directory"
    )
    assert refusal(NODEPOOL_CA_FILE=str(other)) == (
        f"NODEPOOL_CA_FILE: {other} holds no certificates; it must be a file of them in PEM"
    )


def test_each_service_of_a_process_shows_what_is_its_own(tmp_path: Path) -> None:
    # given a process of services, of which one has the seed of its nkey in a file
    (tmp_path / "quota.nk").write_text(key("user").seed)
    environment = {
        "NODEPOOL_NKEY_FILE": str(tmp_path / "{service}.nk"),
        "NODEPOOL_INBOX_PREFIX": "_INBOX_{service}",
        "NODEPOOL_LOG_FILE": "{service}.log",
    }

    # when its settings are read
    settings = read(environment)

    # then that service shows its key, and has replies sent to its own inbox
    own = settings.of("quota")
    assert own.access.nkey_file == str(tmp_path / "quota.nk")
    assert (own.access.inbox_prefix, own.log_file) == ("_INBOX_quota", "quota.log")

    # and a service without a file is refused in one line
    missing = tmp_path / "validator.nk"
    with pytest.raises(SettingsError) as refused:
        settings.of("validator")
    assert (
        str(refused.value)
        == f"NODEPOOL_NKEY_FILE: cannot read {missing}: No such file or directory"
    )


def test_settings_are_shown_without_secrets() -> None:
    shown = Settings(url="nats://user:secret@a:1,tls://token@b").list_settings()
    assert shown["url"] == "nats://a:1,tls://b"
    assert shown.keys() == set(FIELDS)


@pytest.mark.parametrize("value", ["", "9464x", "-2", "65536", "1.5", "--1", "\u0661"])
def test_a_value_that_is_no_port_is_refused_with_the_range(value: str) -> None:
    # given a value that is no port
    # when it is read
    # then the line gives the name, the value and the range
    text = refusal(NODEPOOL_METRICS_PORT=value)
    assert text == f"NODEPOOL_METRICS_PORT is {value!r}; it must be from -1 to 65535"


@pytest.mark.parametrize("value", ["0", "6", "two"])
def test_a_number_of_replicas_out_of_range_is_refused_with_the_range(value: str) -> None:
    # given a number outside the range
    # when it is read
    # then the line gives the range
    text = refusal(NODEPOOL_REPLICAS=value)
    assert text == f"NODEPOOL_REPLICAS is {value!r}; it must be from 1 to 5"


def test_a_value_that_is_no_choice_is_refused_with_the_choices() -> None:
    # given values that are no choices
    # when they are read
    # then the line names the choices
    assert refusal(NODEPOOL_TRACES="yes") == (
        "NODEPOOL_TRACES is 'yes'; it must be off or console or otlp"
    )
    assert refusal(NODEPOOL_LOG_LEVEL="loud") == (
        "NODEPOOL_LOG_LEVEL is 'loud'; it must be debug or info or warning or error"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("NODEPOOL_METRIC_PORT", "9464"), ("NODEPOOL_TRACES", "yes"), ("NODEPOOL_REPLICAS", "0")],
)
def test_a_service_with_a_wrong_setting_ends_with_one_line(name: str, value: str) -> None:
    # given a wrong setting
    # when a service starts with it
    ended = started(**{name: value})

    # then it ends immediately, with an error code and one line that names it
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"quota: {name} is ")


def test_a_service_whose_metrics_port_is_taken_ends_with_one_line() -> None:
    # given a program that listens on the port
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        # when a service is to serve its metrics there
        ended = started(NODEPOOL_METRICS_PORT=str(port))

    # then it ends immediately, with an error code and one line that names the address
    assert ended.returncode == 1
    assert ended.stderr == (
        f"quota: cannot serve metrics on 127.0.0.1:{port}: Address already in use\n"
    )


def test_a_service_that_cannot_write_its_log_ends_with_one_line() -> None:
    # given a log file in a folder that is not there
    # when a service starts
    ended = started(NODEPOOL_LOG_FILE="/nowhere/quota.log")

    # then it ends immediately, with an error code and one line that names the file
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "/nowhere/quota.log" in ended.stderr


@pytest.mark.parametrize("field", FIELDS)
def test_a_value_that_is_no_text_is_refused(field: str) -> None:
    # given a value with a byte that is no UTF-8, as Python reads it
    # when it is read
    # then the line shows the byte, in characters that can be written anywhere
    name = f"NODEPOOL_{field.upper()}"
    text = refusal(**{name: "/tmp/\udcff.log"})
    assert text == rf"{name} is '/tmp/\udcff.log'; it must be UTF-8"
    assert text.isascii()


def test_a_service_with_a_setting_that_is_no_text_ends_with_one_line() -> None:
    # given a path that ends in a byte that is no UTF-8
    # when a service is to log there
    ended = started(NODEPOOL_LOG_FILE="/tmp/\udcff.log")

    # then it ends immediately, with an error code and one line that names the setting
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "quota: NODEPOOL_LOG_FILE is '/tmp/\\udcff.log'; it must be UTF-8\n"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5", 5),
        ("10K", 10_000),
        ("10kb", 10_240),
        ("2MB", 2 << 20),
        ("1GiB", 1 << 30),
        ("1T", 10**12),
        ("18Gi", 18 << 30),
        ("2pi", 2 << 50),
        ("1E", 10**18),
        ("7EiB", 7 << 60),
    ],
)
def test_a_size_is_read_as_a_server_reads_it(text: str, size: int) -> None:
    assert read({"NODEPOOL_MAX_FILE_STORE": text}).max_file_store == size


def test_all_copies_together_may_take_as_much_as_their_servers() -> None:
    assert Settings(max_file_store=10, replicas=3).storage_limit == 30
    assert Settings().storage_limit is None


@pytest.mark.parametrize("value", ["8EB", "10E", "999999999999999E"])
def test_a_size_that_no_server_can_count_is_refused_with_the_most(value: str) -> None:
    text = refusal(NODEPOOL_MAX_FILE_STORE=value)
    assert text == f"NODEPOOL_MAX_FILE_STORE is {value!r}; it must be at most {(1 << 63) - 1} bytes"


@pytest.mark.parametrize("value", ["", "much", "-1", "18 GB", "1.5GB", "9XB", "5B", "5i"])
def test_what_is_no_size_is_refused(value: str) -> None:
    text = refusal(NODEPOOL_MAX_FILE_STORE=value)
    assert text == f"NODEPOOL_MAX_FILE_STORE is {value!r}; it must be a size, such as 18GB"
