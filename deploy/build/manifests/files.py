"""The files that follow from the list of services: `make manifests` writes them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from manifests.marks import fill
from manifests.pages import diagram, flow
from nodepool.contract.providers import provider_tables
from nodepool.contract.services import EVERY, FEED, REPLACEABLE, SERVICES, SHARED

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "deploy" / "kubernetes"
PROMETHEUS = ROOT / "deploy" / "prometheus"
TRIED = ROOT / "tests" / "operations" / "alerts" / "NodepoolServiceAbsent.yml"
_KUSTOMIZATION = """\
resources: [../../service]
nameSuffix: -{name}
labels:
  - pairs: {{ app.kubernetes.io/component: {name} }}
    includeSelectors: true
    includeTemplates: true
patches:
  - target: {{ kind: Deployment }}
    patch: |-
      - {{ op: add, path: /spec/template/spec/containers/0/args, value: [-m, {name}] }}
      - op: add
        path: /spec/template/spec/volumes/0/projected/sources/-
        value: {{ secret: {{ name: nodepool-key-{name} }} }}
"""
_SMALL = """\
# Three Deployments for all services: an addition to ../ for small cells, see ../README.md.
# `make manifests` writes this file.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
  - target: {{ name: nodepool-({others}) }}
    patch: |-
      $patch: delete
      kind: Any
      metadata: {{ name: any }}
{shared}"""
_SHARING = """\
  - target: {{ kind: Deployment, name: nodepool-{first} }}
    patch: |-
      - op: replace
        path: /spec/template/spec/containers/0/args
        value: [-m, nodepool.host, {services}]
  - target: {{ kind: Deployment, name: nodepool-{first} }}
    patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: {{ name: any }}
      spec:
        template:
          spec:
            volumes:
              - name: keys
                projected:
                  sources:
{keys}"""
_KEY = """\
                    - secret: {{ name: nodepool-key-{name} }}
"""
_ENTRY = '''\
"""Runs the {name} service: `python -m {name}`."""

{imports}

HOSTED = Hosted(SERVICE)

if __name__ == "__main__":
    main(HOSTED)
'''
_IMPORTS = ("from nodepool.host.hosting import Hosted", "from nodepool.host.process import main")
_CONTAINER = """\
  {name}:
    <<: *service
    command: [python, -m, nodepool.host, {services}]
"""
_SERIES = """\
  - series: nodepool_ready{{nodepool_service="{name}", instance="{name}:9464", job="nodepool"}}
    values: 1+0x600
"""
_ABSENT = 'absent(nodepool_ready{{nodepool_service="{name}"}})\n'
# A service that a cell may be without is missed only where it was seen.
_GONE = """\
group by (nodepool_service) (last_over_time(nodepool_ready{{nodepool_service="{name}"}}[6h]))
            unless on (nodepool_service) nodepool_ready
"""


def texts() -> dict[Path, str]:
    """Return the content that each file must have, by path."""
    made = {service_manifest(name): _KUSTOMIZATION.format(name=name) for name in SERVICES}
    made[KUBERNETES / "small" / "kustomization.yaml"] = _small()
    made |= {path: text for path, text in _entry_points() if not path.exists()}
    return made | {path: fill(path.read_text("utf-8"), parts) for path, parts in _parts()}


def service_manifest(name: str) -> Path:
    """Return the path of what a service on Kubernetes has of its own."""
    return KUBERNETES / "services" / name / "kustomization.yaml"


def _entry_points() -> Iterator[tuple[Path, str]]:
    """Yield the module that runs each service; a service with settings of its own has another."""
    for name in EVERY:
        imports = (f"from {name}.decide import SERVICE", *_IMPORTS)
        text = _ENTRY.format(name=name, imports="\n".join(sorted(imports)))
        yield ROOT / "services" / name / "__main__.py", text


def _parts() -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Yield the parts between marks of each file."""
    yield ROOT / "README.md", {"diagram": diagram()}
    yield ROOT / "services" / "README.md", {"flow": flow()}
    yield ROOT / "shared" / "PROVIDERS.md", {"rules": f"\n{provider_tables()}\n\n"}
    yield ROOT / "docker-compose.yml", {"services": _containers()}
    yield KUBERNETES / "kustomization.yaml", {"services": _list("  - services/{name}\n")}
    yield (
        PROMETHEUS / "prometheus.yml",
        {"services": "".join(f"          - {name}\n" for name in SHARED)},
    )
    yield PROMETHEUS / "nodepool.rules.yml", {"services": _absence()}
    all_but = {f"all but {name}": _list(_SERIES, but=name) for name in ("validator", "fleet")}
    yield TRIED, {"all": _list(_SERIES), **all_but}


def _list(line: str, *, but: str = "") -> str:
    return "".join(line.format(name=name) for name in SERVICES if name != but)


def _small() -> str:
    """Return the component with which one Deployment runs the services of a container."""
    groups = SHARED.values()
    firsts = {group[0] for group in groups}
    return _SMALL.format(
        others="|".join(name for name in SERVICES if name not in firsts),
        shared="".join(
            _SHARING.format(
                first=group[0],
                services=", ".join(group),
                keys="".join(_KEY.format(name=name) for name in (*group, FEED)),
            )
            for group in groups
            if len(group) > 1
        ),
    )


def _containers() -> str:
    return "".join(
        _CONTAINER.format(name=name, services=", ".join(group)) for name, group in SHARED.items()
    )


def _absence() -> str:
    """Return the expression that is true for each service of which no replica is seen."""
    terms = ((_GONE if name in REPLACEABLE else _ABSENT).format(name=name) for name in EVERY)
    return "        expr: |\n          " + "          or\n          ".join(terms)
