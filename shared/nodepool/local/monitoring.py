"""The configuration of a Prometheus that monitors a control plane on one machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from shlex import join

import yaml

from nodepool.host.protection import Protection
from nodepool.local.errors import UpError
from nodepool.local.ports import HOST

_DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = _DEPLOY / "prometheus" / "nodepool.rules.yml"
"""The alerting rules; the file does not exist if only the package is installed."""
RUNBOOKS = _DEPLOY / "runbooks"
OPEN = Protection()
"""Everybody on this machine may read the metrics."""
INTERVAL = "5s"
"""How often metrics are scraped; with this interval, graphs show rates over at least 20 seconds."""


def write_prometheus_config(
    data_dir: Path, ports: Mapping[str, int], protection: Protection = OPEN
) -> str:
    """Write `prometheus.yml`; return the command that starts a Prometheus with this file.

    The targets are in a file of their own, which a Prometheus that runs reads again by itself, see
    https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config.

    data_dir: the folder of the files. ports: the port of each service's metrics.
    protection: what the services show, and what they have to be shown.

    Raises `UpError` if a file cannot be written.
    """
    file, targets = data_dir / "prometheus.yml", data_dir / "prometheus-targets.json"
    _write(targets, _targets(ports))
    _write(file, "# Written by `nodepool up` at each start.\n" + _config(targets.name, protection))
    return join(
        [
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={data_dir / 'prometheus'}",
            "--enable-feature=exemplar-storage",
            *([f"--web.user-assets={RUNBOOKS}"] if RUNBOOKS.is_dir() else []),
        ]
    )


def _write(file: Path, text: str) -> None:
    """Replace a file as a whole; raise `UpError` if that fails."""
    new = file.with_name(f".{file.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise UpError(
            f"cannot write {file}: {error.strerror}: fix that, or choose another directory"
        ) from error


def _targets(ports: Mapping[str, int]) -> str:
    """Return the text of the targets: every service with its name."""
    targets = [
        {"targets": [f"{HOST}:{port}"], "labels": {"service": name}} for name, port in ports.items()
    ]
    return json.dumps(targets, indent=1, ensure_ascii=False) + "\n"


def _config(targets: str, protection: Protection) -> str:
    """Return the text of the configuration: the file with the targets, and the alerts."""
    where = {"file_sd_configs": [{"files": [targets]}]}
    job = {"job_name": "nodepool", **_access(protection), **where}
    document = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        **({"rule_files": [str(RULES)]} if RULES.is_file() else {}),
        "scrape_configs": [job],
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _access(protection: Protection) -> dict[str, object]:
    """Return how Prometheus reads the pages; it takes a certificate itself for its authority."""
    settings: dict[str, object] = {}
    if protection.cert_file:
        authority = str(Path(protection.cert_file).absolute())
        settings |= {"scheme": "https", "tls_config": {"ca_file": authority}}
    if protection.token_file:
        token = str(Path(protection.token_file).absolute())
        settings["authorization"] = {"credentials_file": token}
    return settings
