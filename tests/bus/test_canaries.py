"""Secrets stay in their files: all that is written is searched for the canaries in each."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bus.canaries import (
    PASSWORD,
    TOKEN,
    Canaries,
    broken,
    broken_certificates,
    file_with,
)
from bus.cli import ZONE, environment
from nodepool.cli.app import run
from nodepool.host.settings import SettingsError, read
from support.certificates import needs_openssl
from testbed.ports import free_port

PATIENCE_S = 60.0


def commands(
    lines: Sequence[str], capfd: pytest.CaptureFixture[str], *common: str
) -> dict[str, str]:
    """What each command writes."""
    written = dict[str, str]()
    capfd.readouterr()
    for line in lines:
        code = run([*common, *line.split()])
        shown = capfd.readouterr()
        written[f"{line} (exit code {code})"] = shown.out + shown.err
    return written


@needs_openssl
def test_no_error_about_a_broken_secret_quotes_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # given settings and files with secrets, each of them wrong
    canaries = Canaries()
    canaries.plant("password", PASSWORD)
    canaries.plant("token", TOKEN)
    written = dict[str, str]()
    cases = [*broken(tmp_path, canaries), *broken_certificates(tmp_path, canaries)]
    for name, settings in cases:
        # when the command line, its doctor and a service read each
        named = {f"NODEPOOL_{field}": value for field, value in settings.items()}
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in named.items():
                patch.setenv(variable, value)
            for line, text in commands(("get nodepools", "doctor"), capfd).items():
                written[f"{name}: {line}"] = text
        with pytest.raises(SettingsError) as error:
            read(named)
        written[f"{name}: service"] = str(error.value)

        # then each says in one line which setting is wrong
        assert re.match(r"NODEPOOL_[A-Z_]+\b.*[^\n]$", str(error.value)), name
    # and none quotes a secret
    assert not canaries.found_in(written)


def test_neither_a_kubeconfig_nor_a_header_of_spans_is_quoted(tmp_path: Path) -> None:
    # given an agent whose kubeconfig is cut within its token, and a header without a name
    canaries = Canaries()
    canaries.plant("token", TOKEN)
    config = file_with(tmp_path / "config", f'users: [{{name: u, user: {{token: "{TOKEN}')
    place = {"NODEPOOL_ORG": "acme", "NODEPOOL_CLUSTER": "prod", "NODEPOOL_ZONE": ZONE}
    spans = {"NODEPOOL_TRACES": "otlp", "OTEL_EXPORTER_OTLP_HEADERS": f"{TOKEN} x"}
    written = dict[str, str]()
    get = ("get", "np", "--request-timeout", "1")
    for module, words, settings in (
        ("agent", (), {**place, "KUBECONFIG": config}),
        ("nodepool.cli", get, {**spans, "NODEPOOL_URL": "nats://127.0.0.1:1"}),
    ):
        # when each is started
        ended = subprocess.run(
            [sys.executable, "-m", module, *words],
            env={**environment(free_port()), **settings},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        written[module] = ended.stdout + ended.stderr

    # then each ends with a line that does not have the token
    assert written["agent"] == f"agent: KUBECONFIG: {config} is no valid YAML in line 1\n"
    assert "127.0.0.1:1" in written["nodepool.cli"]
    assert not canaries.found_in(written)
