"""Lists what the image holds as CycloneDX: `python -m image.sbom ROOT APP REPORT...`.

See https://cyclonedx.org/docs/1.6/json/. The Python packages are those whose metadata lies in the
image; the hash of each is the one that was checked when it was installed, from pip's reports.
"""

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

Component = Mapping[str, object]
NAME = "nodepool"


def sbom(root: Path, app: Path, reports: Sequence[Path]) -> str:
    """Return the document for the file systems `root` and `app`; the same for the same content."""
    hashes = dict(item for report in reports for item in _hashes(report))
    packages = root.glob("usr/local/lib/python3*/*-packages")
    found = distributions(path=[str(app), *map(str, packages)])
    python = sorted((_python_package(each, hashes) for each in found), key=_reference)
    system = sorted(_system_packages(root), key=_reference)
    (ours,) = [component for component in python if component["name"] == NAME]
    moment = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    body = {
        "metadata": {
            "timestamp": moment.isoformat().replace("+00:00", "Z"),
            "component": {**ours, "type": "application"},
        },
        "components": [*(each for each in python if each is not ours), _interpreter(), *system],
    }
    serial = uuid5(NAMESPACE_URL, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}"}
    return json.dumps({**head, "version": 1, **body}, indent=1) + "\n"


def _reference(component: Component) -> str:
    return str(component["bom-ref"])


def _hashes(report: Path) -> Iterator[tuple[str, str]]:
    """Return the SHA-256 of each archive that pip installed, by the name of the package."""
    for item in json.loads(report.read_text(encoding="utf-8"))["install"]:
        hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
        if "sha256" in hashes:
            yield _normal(item["metadata"]["name"]), hashes["sha256"]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _python_package(package: Distribution, hashes: Mapping[str, str]) -> Component:
    name = _normal(package.name)
    component = _component(name, package.version, f"pkg:pypi/{name}@{quote(package.version)}")
    if "License-Expression" in package.metadata:
        component["licenses"] = [{"expression": package.metadata["License-Expression"]}]
    if name in hashes:
        component["hashes"] = [{"alg": "SHA-256", "content": hashes[name]}]
    return component


def _interpreter() -> Component:
    version = platform.python_version()
    return _component("python", version, f"pkg:generic/python@{version}")


def _system_packages(root: Path) -> Iterator[Component]:
    for file in root.glob("var/lib/dpkg/status.d/*"):
        text = file.read_text(encoding="utf-8")
        fields = dict(re.findall(r"(?m)^(Package|Version|Architecture): (.+)$", text))
        name, version = fields["Package"], fields["Version"]
        purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={fields['Architecture']}"
        yield _component(name, version, purl)


def _component(name: str, version: str, purl: str) -> dict[str, object]:
    kind = {"type": "library", "bom-ref": purl}
    return {**kind, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    sys.stdout.write(sbom(Path(sys.argv[1]), Path(sys.argv[2]), [*map(Path, sys.argv[3:])]))
