"""What `nodepool up` writes for a Prometheus."""

import json
from pathlib import Path

import pytest
import yaml

from nodepool.contract.services import SERVICES
from nodepool.local.errors import UpError
from nodepool.local.monitoring import RULES, RUNBOOKS, write_prometheus_config

PORTS = {name: 9464 + number for number, name in enumerate(SERVICES)}


def test_every_service_is_a_target_with_its_name(tmp_path: Path) -> None:
    # when the files are written
    write_prometheus_config(tmp_path, PORTS)

    # then they name the port of every service, and the alerts
    written = yaml.safe_load((tmp_path / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = written["scrape_configs"]
    (files,) = job["file_sd_configs"]
    (file,) = files["files"]
    targets = json.loads((tmp_path / file).read_text(encoding="utf-8"))
    assert {target["labels"]["service"]: target["targets"] for target in targets} == {
        name: [f"127.0.0.1:{port}"] for name, port in PORTS.items()
    }
    assert written["rule_files"] == [str(RULES)]


def test_the_command_names_the_file_its_data_and_the_runbooks(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    assert write_prometheus_config(folder, PORTS) == (
        f"prometheus '--config.file={folder}/prometheus.yml' "
        f"'--storage.tsdb.path={folder}/prometheus' --enable-feature=exemplar-storage "
        f"--web.user-assets={RUNBOOKS}"
    )


def test_a_file_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    # given something else in its place
    (tmp_path / "prometheus.yml").mkdir()

    # then the error names it
    with pytest.raises(UpError) as refused:
        write_prometheus_config(tmp_path, PORTS)
    assert str(refused.value) == (
        f"cannot write {tmp_path / 'prometheus.yml'}: Is a directory: "
        "fix that, or choose another directory"
    )
