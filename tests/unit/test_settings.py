"""Settings from the environment: what is read, and what is refused in one line."""

import os
import socket
import subprocess
import sys

import pytest

from nodepool.host.settings import Settings, SettingsError, read


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


def test_every_setting_can_be_set() -> None:
    # given a value for each
    environment = {
        "NODEPOOL_URL": "nats://bus:4222",
        "NODEPOOL_METRICS_HOST": "0.0.0.0",
        "NODEPOOL_METRICS_PORT": "9464",
        "NODEPOOL_LOG_LEVEL": "debug",
        "NODEPOOL_LOG_FILE": "/tmp/quota.log",
        "NODEPOOL_TRACES": "otlp",
        "NODEPOOL_REPLICAS": "3",
        "NODEPOOL_STOP_WITH_PARENT": "yes",
        "NODEPOOL_DEPRECATED_CONDITIONS": "show",
        "NODEPOOL_ANSWER_MINUTES": "5",
    }

    # when they are read
    settings = read(environment)

    # then each has its value, in its own type
    assert settings == Settings(
        url="nats://bus:4222",
        metrics_host="0.0.0.0",
        metrics_port=9464,
        log_level="debug",
        log_file="/tmp/quota.log",
        traces="otlp",
        replicas=3,
        stop_with_parent="yes",
        deprecated_conditions="show",
        answer_minutes=5,
    )
    assert len(environment) == len(Settings.__slots__)


def test_the_variables_of_kubernetes_for_a_service_of_that_name_are_ignored() -> None:
    # given the variables of a Pod beside a Service named nodepool-console
    environment = {
        "NODEPOOL_CONSOLE_SERVICE_HOST": "10.0.0.7",
        "NODEPOOL_CONSOLE_SERVICE_PORT_HTTP": "80",
        "NODEPOOL_CONSOLE_PORT": "tcp://10.0.0.7:80",
        "NODEPOOL_CONSOLE_PORT_80_TCP_ADDR": "10.0.0.7",
    }

    # when it is read
    settings = read(environment)

    # then all is at its default
    assert settings == Settings()


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
    assert all(f"NODEPOOL_{name.upper()}" in text for name in Settings.__slots__)


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


@pytest.mark.parametrize("value", ["host", "host:4222", "tls://u:p@host:1", "nats://[::1]:4222"])
def test_every_way_to_write_an_address_is_taken(value: str) -> None:
    assert read({"NODEPOOL_URL": value}).url == value


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
