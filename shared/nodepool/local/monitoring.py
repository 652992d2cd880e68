"""The configuration of a Prometheus that monitors a control plane on one machine."""

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

    data_dir: the folder of the file. ports: the port of each service's metrics.
    protection: what the services show, and what they have to be shown.

    Raises `UpError` if the file cannot be written.
    """
    file = data_dir / "prometheus.yml"
    text = "# Written by `nodepool up` at each start.\n" + _config(ports, protection)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UpError(
            f"cannot write {file}: {error.strerror}: fix that, or choose another directory"
        ) from error
    return join(
        [
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={data_dir / 'prometheus'}",
            "--enable-feature=exemplar-storage",
            *([f"--web.user-assets={RUNBOOKS}"] if RUNBOOKS.is_dir() else []),
        ]
    )


def _config(ports: Mapping[str, int], protection: Protection) -> str:
    """Return the text of the file: every service as a target with its name, and the alerts."""
    targets = [
        {"targets": [f"{HOST}:{port}"], "labels": {"service": name}} for name, port in ports.items()
    ]
    document = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        **({"rule_files": [str(RULES)]} if RULES.is_file() else {}),
        "scrape_configs": [
            {"job_name": "nodepool", **_access(protection), "static_configs": targets}
        ],
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
