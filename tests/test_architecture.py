"""The rules of the source tree: imports between rooms, the flow of messages, sizes, and pages."""

import ast
import gc
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from nodepool.contract import commands, events, messages, metrics
from nodepool.contract.agent_metrics import OF_THE_AGENT
from nodepool.contract.archive_metrics import OF_THE_ARCHIVER
from nodepool.contract.console_metrics import OF_THE_CONSOLE
from nodepool.contract.gateway_metrics import OF_THE_GATEWAY
from nodepool.contract.messages import (
    Command,
    Event,
    Message,
    Outcome,
    ProviderEvent,
    members,
)
from nodepool.contract.metal_metrics import OF_THE_DRIVER
from nodepool.contract.providers import (
    ProviderHears,
    ProviderSays,
    SimulationHears,
    SimulationSays,
)
from nodepool.contract.services import DRIVERS, EDGES, EVERY, PROVIDERS, SILENT
from nodepool.host import settings
from nodepool.service import AnyService

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"

ROOMS = (
    "nodepool.contract",
    "nodepool.archive",
    "nodepool.usage",
    "nodepool.state",
    "nodepool.placement",
    "nodepool.explanation",
    "nodepool.service",
    "nodepool.engine",
    "nodepool.auth",
    "nodepool.nats.wire",
    "nodepool.archive.storage",
    "nodepool.auth.credentials",
    "nodepool.auth.folder",
    "nodepool.nats.log",
    "nodepool.nats.objects",
    "nodepool.kube",
    "nodepool.host",
    "nodepool.client",
    "nodepool.local",
    "nodepool.cli",
)
"""The rooms of `shared/nodepool`, in their order: each may import itself and those above it."""
PURE_ROOMS = ROOMS[: ROOMS.index("nodepool.nats.wire")]
"""Rooms without a clock, random numbers, the network or the operating system."""
KEYS = "nodepool.contract.keys"
"""The one module that makes keys and takes them apart."""
KUBE = "nodepool.kube"
"""The room of what lightkube, an optional dependency, is needed for."""
OF_KUBE = frozenset({"nodepool.contract", "nodepool.state", KUBE})
"""The rooms that it may import: it knows the API of Kubernetes, and nothing of the bus."""
PARTS_OF_THE_AGENT = ("agent.pods", "agent.nodes", "agent.pools", "agent.host", "agent.main")
"""The parts of the agent, in their order: each may import itself and those before it."""
WITH_A_HOST = (*EDGES, "metal")
"""The packages of `services/` with a part, `host`, that reads and writes outside of the bus."""
OF_A_SERVICE = ROOMS[: ROOMS.index("nodepool.engine")]
"""What the decisions of a service are made of."""
FORBIDDEN = frozenset(
    ["asyncio", "os", "random", "secrets", "socket", "subprocess", "threading", "time"]
)
"""Modules of the standard library that read a clock, draw random numbers or do I/O."""
PURE_PACKAGES = frozenset(["immutables", "pydantic", "pydantic_core", "typing_extensions"])
"""What a pure room may import beside the standard library."""
IMPURE_CALLS = frozenset(["now", "today", "utcnow", "uuid1", "uuid4"])
"""Calls whose result differs at a replay."""

EXPLAINED_BY_BASE = frozenset({"path"})
"""Methods whose docstring is that of the base class."""
MODULE_LINES_MAX = 300
FUNCTION_LINES_MAX = 40
LISTS_MESSAGES = "it lists each message that the service knows, and does nothing else"
OVERSIZED: dict[str, str] = {
    "aggregator.objects": "the objects of the read model, side by side",
    "aggregator.changes.evolve": LISTS_MESSAGES,
    "aggregator.figures.state._fold": LISTS_MESSAGES,
    "aggregator.projection.list_touched": LISTS_MESSAGES,
    "allocator.state.evolve": LISTS_MESSAGES,
    "capacity.state.evolve": LISTS_MESSAGES,
    "fleet.state.evolve": LISTS_MESSAGES,
    "lifecycle.state._fold_message": LISTS_MESSAGES,
    "lifecycle.changes.change_node": LISTS_MESSAGES,
    "lifecycle.changes": "how each message changes a Node, side by side",
    "lifecycle.table": "the whole state machine of a Node, to be read from its top",
    "lifecycle.table.leave": "a part of the table",
    "nodepool.cli.tables": "the columns of each type, side by side",
    "nodepool.engine.step": "one input, live and on replay, in the order in which it is processed",
    "nodepool.service": "all that an author of a service uses",
    "nodepool.nats.log.reader": "its tasks share the position, the buffer and the consumer",
}
"""Modules and functions over the limit, each with its reason."""

NODE_EVENTS = {
    "CWNodeRegistered": ("Node",),
    "CWRegistrationFailedEvent": ("Node",),
}
POOL_EVENTS = {
    "CWDrainNode": ("NodePool",),
    "CWInstanceTypeNotInZone": ("NodePool",),
    "CWInsufficientCapacity": ("NodePool",),
    "CWInvalidInstanceType": ("NodePool",),
    "CWNodeAssigned": ("NodePool",),
    "CWNodeCordoned": ("Node", "NodePool"),
    "CWNodeUncordoned": ("Node", "NodePool"),
    "CWNodeDeleted": ("NodePool",),
    "CWNodeDeletionRequestSuccess": ("NodePool",),
    "CWNodeDeliverFail": ("NodePool",),
    "CWNodePoolCreated": ("NodePool",),
    "CWNodePoolDeleted": ("NodePool",),
    "CWNodePoolMetadata": ("NodePool",),
    "CWNodePoolNodesRemoved": ("NodePool",),
    "CWNodePoolNodesRemoveError": ("NodePool",),
    "CWNodePoolNodesRequestFailed": ("NodePool",),
    "CWNodePoolQuotaCheckFailed": ("NodePool",),
    "CWNodePoolRemoveNodes": ("NodePool",),
    "CWNodePoolScaledDown": ("NodePool",),
    "CWNodePoolScaledUp": ("NodePool",),
    "CWNodeRegistered": ("Node", "NodePool"),
    "CWNodeRegistrationFailed": ("Node",),
    "CWNodeRequestQueued": ("NodePool",),
    "CWOverQuota": ("NodePool",),
}
PREEMPTION_REASONS = (
    "Preemption pending",
    "Preemption in progress",
    "Deleted for preemption",
)

UNSAID: dict[str, str] = {}
"""Events that no service says, each with its reason."""
SHOWN = "a Kubernetes event, which users watch"
FOR_PEOPLE = {
    "CWInstanceTypeNotInZone": SHOWN,
    "CWInsufficientCapacity": SHOWN,
    "CWInvalidInstanceType": SHOWN,
    "CWNodeDeliverFail": SHOWN,
    "CWNodePoolCreated": SHOWN,
    "CWNodePoolMetadata": SHOWN,
    "CWNodePoolNodesRequestFailed": SHOWN,
    "CWNodePoolRemoveNodes": SHOWN,
    "CWNodePoolScaledDown": SHOWN,
    "CWNodePoolScaledUp": SHOWN,
    "CWNodeRequestQueued": SHOWN,
    "CWOverQuota": SHOWN,
    "CWRegistrationFailedEvent": SHOWN,
    "DeletedForPreemption": SHOWN,
    "HeartbeatsStopped": "folded by the fleet service that says it; Ready=Unknown follows",
    **dict.fromkeys(
        (
            "MachineCheckRequested",
            "MachinePowerWished",
        ),
        "folded by the metal service that says it; its driver follows it",
    ),
    "NodeActionRequested": "folded by the lifecycle service that says it; a Node shows the rest",
    "AutoscalingFailed": "folded by the autoscaler service that says it and tries again",
    "PreemptionFailed": "folded by the preemption service that says it and tries again",
    "MachineUpdateFailed": "folded by the fleet service that says it and tries again",
    "PodUpdateFailed": "folded by the fleet service that says it and tries again",
    "CapacityReclaimFailed": "folded by the allocator service that says it and tries again",
    "NodeLockChanged": "the prolog of the Slurm job waits for it",
    "CapacityFound": "its sender waits for it",
    "CommandAccepted": "its sender waits for it",
    "CommandRefused": "its sender waits for it",
}
"""Events that no service hears, each with its reason."""

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One Python file of the two source roots."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    @property
    def package(self) -> str:
        """The first part of its name: `nodepool`, or a service."""
        return self.name.split(".")[0]

    @property
    def pure(self) -> bool:
        """Whether it may not read a clock, draw random numbers or do I/O."""
        if self.package == "nodepool":
            return room_of(self.name) in PURE_ROOMS
        is_started = self.name.endswith((".__main__", ".main"))
        return not (is_started or self.touches_the_world)

    @property
    def touches_the_world(self) -> bool:
        """Whether it is of the part of a package that reads and writes outside of the bus."""
        return any(f"{self.name}.".startswith(f"{name}.host.") for name in WITH_A_HOST)

    def imports(self) -> tuple[tuple[str, ...], ...]:
        """Every module it imports, as the parts of its name; `from a import b` gives both."""
        return _imports_of(self.tree)

    def definitions(self) -> Iterator[tuple[str, Definition]]:
        """Its classes and functions with their qualified names, methods included."""
        yield from _definitions(self.tree, self.name)


@cache
def _imports_of(tree: ast.Module) -> tuple[tuple[str, ...], ...]:
    found = list[tuple[str, ...]]()
    for node in _statements(tree):
        match node:
            case ast.Import(names=names):
                found += [tuple(alias.name.split(".")) for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found += [(*module.split("."), alias.name) for alias in names]
            case ast.ImportFrom():
                found.append(("", "relative"))
    return tuple(found)


def _statements(parent: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement below a node; expressions, most of a tree, hold no statements."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for node in getattr(parent, name, ()):
            if isinstance(node, ast.stmt):
                yield node
            yield from _statements(node)


def _definitions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Definition):
            name = f"{prefix}.{node.name}"
            yield name, node
            yield from _definitions(node, name)


def _module(root: Path, path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    return Module(name, path, ast.parse(text), len(text.splitlines()))


@cache
def modules() -> tuple[Module, ...]:
    """Every module of both source roots."""
    roots = (ROOT / "services", ROOT / "shared")
    # The trees stay until the process ends, and searches for garbage in them take most of the time.
    gc.disable()
    try:
        return tuple(_module(root, path) for root in roots for path in sorted(root.rglob("*.py")))
    finally:
        gc.freeze()
        gc.enable()


@cache
def services() -> tuple[AnyService, ...]:
    """Every service that can be started, in the order of the list of services."""
    found = {path.parent.name for path in (ROOT / "services").glob("*/decide.py")}
    names = (*(name for name in EVERY if name in found), *sorted(found - {*EVERY}))
    return tuple(importlib.import_module(f"{name}.decide").SERVICE for name in names)


def concrete(module: object, kind: type[Message]) -> dict[str, type[Message]]:
    """The message classes of this kind that a module defines and no other derives from."""
    return {
        name: found
        for name, found in vars(module).items()
        if isinstance(found, type)
        and issubclass(found, kind)
        and found.__module__ != messages.__name__
        and not found.__subclasses__()
    }


COMMANDS = concrete(commands, Command)
EVENTS = concrete(events, Event)


def written() -> Iterator[tuple[str, str]]:
    """Every text file of the repository: its path and its text; not what npm has installed."""
    folders = (ROOT / name for name in (".ci", "deploy", "services", "shared", "tests"))
    inside = (path for folder in folders for path in sorted(folder.rglob("*")))
    for path in (*sorted(ROOT.glob("*")), *inside):
        if path.is_file() and path.suffix != ".pyc" and "node_modules" not in path.parts:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8", errors="replace")


# Imports.


def test_nothing_is_imported_by_the_name_of_its_source_root() -> None:
    found = [
        (module.name, parts)
        for module in modules()
        for parts in module.imports()
        if parts[0] in ("shared", "services", "tests", "")
    ]

    assert found == []


def test_no_product_code_imports_from_the_tests() -> None:
    names = {path.stem for path in (ROOT / "tests").iterdir()}
    trees = {module.path: module.tree for module in modules()}
    for path in (ROOT / "deploy").rglob("*.py"):
        trees[path] = ast.parse(path.read_text(encoding="utf-8"))

    found = [
        (str(path.relative_to(ROOT)), parts)
        for path, tree in trees.items()
        for parts in _imports_of(tree)
        if parts[0] in names
    ]

    assert found == []


def test_services_never_import_each_other() -> None:
    names = {*(service.name for service in services()), *WITH_A_HOST}

    found = [
        (module.name, parts)
        for module in modules()
        for parts in module.imports()
        if parts[0] in names and parts[0] != module.package
    ]

    assert found == []


def test_one_module_imports_the_client_of_nats() -> None:
    importing = [m.name for m in modules() if any(parts[0] == "nats" for parts in m.imports())]

    assert importing == ["nodepool.nats.wire.library"]


def room_of(name: str) -> str | None:
    """The room that a dotted name belongs to; None outside `nodepool`."""
    return max((room for room in ROOMS if f"{name}.".startswith(f"{room}.")), key=len, default=None)


def test_every_shared_module_is_in_a_room() -> None:
    homeless = [m.name for m in modules() if m.package == "nodepool" and room_of(m.name) is None]

    assert homeless == ["nodepool", "nodepool.nats"]


def test_a_room_imports_only_itself_and_the_rooms_above_it() -> None:
    found = [
        f"{module.name} imports {'.'.join(parts)}"
        for module in modules()
        if (room := room_of(module.name)) is not None
        for parts in module.imports()
        if (imported := room_of(".".join(parts))) is not None
        and ROOMS.index(imported) > ROOMS.index(room)
    ]

    assert found == []


def test_the_room_of_kubernetes_knows_nothing_of_the_bus() -> None:
    found = [
        f"{module.name} imports {'.'.join(parts)}"
        for module in modules()
        if room_of(module.name) == KUBE
        for parts in module.imports()
        if (imported := room_of(".".join(parts))) is not None and imported not in OF_KUBE
    ]

    assert found == []


def test_only_an_edge_of_kubernetes_needs_lightkube() -> None:
    found = [
        f"{module.name} imports {'.'.join(parts)}"
        for module in modules()
        if room_of(module.name) != KUBE and module.package != "agent"
        for parts in module.imports()
        if parts[0] == "lightkube" or room_of(".".join(parts)) == KUBE
    ]

    assert found == []


def test_only_the_storage_of_the_archive_needs_its_extra() -> None:
    found = [
        f"{module.name} imports {'.'.join(parts)}"
        for module in modules()
        if room_of(module.name) != "nodepool.archive.storage"
        for parts in module.imports()
        if parts[0] in ("duckdb", "obstore", "pyarrow")
    ]

    assert found == []


def test_only_edges_that_speak_http_need_aiohttp() -> None:
    found = [
        f"{module.name} imports {'.'.join(parts)}"
        for module in modules()
        if room_of(module.name) != KUBE and module.package != "agent"
        if not module.name.startswith("metal.host.")
        for parts in module.imports()
        if parts[0] in ("aiohttp", "yarl")
    ]

    assert found == []


def test_the_decisions_of_the_agent_know_what_lies_below_them_alone() -> None:
    found = [
        f"{module.name} imports {'.'.join(parts)}"
        for module in modules()
        for parts in module.imports()
        if (room := _floor(module.name)) is not None
        if (imported := _floor(".".join(parts))) is not None
        and PARTS_OF_THE_AGENT.index(imported) > PARTS_OF_THE_AGENT.index(room)
    ]

    assert found == []


def _floor(name: str) -> str | None:
    """The part of the agent that a dotted name belongs to; None for what all parts share."""
    return next((part for part in PARTS_OF_THE_AGENT if f"{name}.".startswith(f"{part}.")), None)


def test_a_pure_room_imports_only_what_is_pure() -> None:
    allowed = (sys.stdlib_module_names - FORBIDDEN) | PURE_PACKAGES | {"nodepool"}

    found = [
        f"{module.name} imports {'.'.join(parts)}"
        for module in modules()
        if module.pure and module.package == "nodepool"
        for parts in module.imports()
        if parts[0] not in allowed
    ]

    assert found == []


def test_a_decision_imports_only_what_is_pure() -> None:
    found = [
        f"{module.name} imports {'.'.join(parts)}"
        for module in modules()
        if module.pure and module.package != "nodepool"
        for parts in module.imports()
        if not _allowed_in_a_decision(module, parts)
    ]

    assert found == []


def _allowed_in_a_decision(module: Module, parts: tuple[str, ...]) -> bool:
    match parts:
        case (module.package, "host", *_) if module.package in WITH_A_HOST:
            return False
        case (module.package | "immutables", *_):
            return True
        case ("nodepool", *_):
            return room_of(".".join(parts)) in OF_A_SERVICE
        case (name, *_):
            return name in sys.stdlib_module_names - FORBIDDEN
    return False


def test_nothing_pure_reads_a_clock_or_draws_random_numbers() -> None:
    found = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        if module.pure
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in IMPURE_CALLS
    ]

    assert found == []


def test_a_wait_with_a_bound_loses_no_cancellation() -> None:
    # In Python 3.11 `asyncio.wait_for` does, and `asyncio.timeout` does not:
    # https://github.com/python/cpython/issues/86296
    found = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "wait_for"
        and ast.unparse(node) == "asyncio.wait_for"
    ]

    assert found == []


def test_every_service_has_a_question_a_state_a_decision_and_an_entry_point() -> None:
    names = {module.name for module in modules()}

    for service in services():
        question = importlib.import_module(service.name).__doc__ or ""
        parts = {f"{service.name}.{part}" for part in ("state", "decide", "__main__")}

        assert parts <= names
        assert "?" in question, f"services/{service.name}/__init__.py has no question"


def test_keys_are_made_and_taken_apart_in_one_place() -> None:
    pure = (module for module in modules() if module.pure and module.name != KEYS)

    found = [
        f"{module.name}:{node.lineno}"
        for module in pure
        for node in ast.walk(module.tree)
        if isinstance(node, ast.expr) and (_makes_a_key(node) or _joins_or_splits_a_key(node))
    ]

    assert found == []


def _makes_a_key(node: ast.expr) -> bool:
    """Whether it is a string of placeholders with slashes between them and nothing else."""
    if not isinstance(node, ast.JoinedStr):
        return False
    texts = [part.value for part in node.values if isinstance(part, ast.Constant)]
    return bool(texts) and set(texts) == {"/"} and len(texts) < len(node.values)


def _joins_or_splits_a_key(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="split"), args=[ast.Constant(value="/"), *_]):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Constant(value="/"), attr="join")):
            return True
    return False


# The flow of messages.


def test_the_catalogue_of_events_names_every_event_class() -> None:
    folder = ROOT / "shared" / "nodepool" / "contract" / "events"
    defined = {
        node.name
        for path in folder.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }

    missing = defined - set(events.__all__)

    assert not missing, f"add to __all__ in contract/events/__init__.py: {sorted(missing)}"


def test_every_event_is_said_by_its_speakers() -> None:
    said = {
        name: [service.name for service in services() if name in service.outputs]
        for name, kind in EVENTS.items()
        if not issubclass(kind, Outcome) and name != "Wake"
    }

    beside = (*EDGES, *DRIVERS.values())
    expected = {
        name: [each for each in kind.speakers() if name not in UNSAID and each not in beside]
        for name, kind in EVENTS.items()
        if name in said and issubclass(kind, Event)
    }
    assert said == expected


def test_every_edge_says_events_of_its_own_or_is_silent() -> None:
    events = [kind for kind in EVENTS.values() if issubclass(kind, Event)]
    speakers = {speaker for kind in events for speaker in kind.speakers()}

    assert set(EDGES) - speakers == SILENT
    assert set(EDGES).isdisjoint(EVERY)


def test_a_provider_hears_and_says_all_that_is_between_it_and_the_services() -> None:
    for provider in (service for service in services() if service.name in PROVIDERS):
        assert {kind.__name__ for kind in members(ProviderHears)} <= set(provider.inputs)
        assert {kind.__name__ for kind in members(ProviderSays)} <= set(provider.outputs)


def test_only_the_fleet_hears_and_says_what_concerns_simulated_machines_alone() -> None:
    for kind in members(SimulationHears):
        if kind.__name__ in COMMANDS:
            assert [s.name for s in services() if kind.__name__ in s.inputs] == ["fleet"]
    for event in members(SimulationSays):
        assert [s.name for s in services() if event.__name__ in s.outputs] == ["fleet"]


def test_every_event_of_a_provider_is_one_that_each_provider_says() -> None:
    found = {name for name, kind in EVENTS.items() if issubclass(kind, ProviderEvent)}

    assert found == {kind.__name__ for kind in members(ProviderSays)}


def test_the_clock_alone_says_wake() -> None:
    assert events.Wake.speaker == "clock"
    assert [service.name for service in services() if "Wake" in service.outputs] == []


def test_an_outcome_is_said_by_every_service_that_hears_commands() -> None:
    takers = [s.name for s in services() if any(name in COMMANDS for name in s.inputs)]

    for outcome in ("CommandAccepted", "CommandRefused"):
        assert [s.name for s in services() if outcome in s.outputs] == takers
        assert EVENTS[outcome].__bases__[0] is Outcome


def test_every_command_is_heard_by_exactly_one_service() -> None:
    hearers = {name: sum(name in s.inputs for s in services()) for name in COMMANDS}

    assert hearers == dict.fromkeys(COMMANDS, 1)


def test_the_list_of_commands_names_them_all() -> None:
    assert set(COMMANDS) == commands.COMMANDS


def test_no_service_says_a_command() -> None:
    assert [(s.name, name) for s in services() for name in s.outputs if name in COMMANDS] == []


def test_every_event_is_heard_by_a_service_or_meant_for_people() -> None:
    unheard = {name for name in EVENTS if not any(name in s.inputs for s in services())}

    assert unheard == set(FOR_PEOPLE) | set(UNSAID)


def test_a_service_hears_and_says_only_what_the_contracts_define() -> None:
    known = {**COMMANDS, **EVENTS}

    for service in services():
        assert {**service.inputs, **service.outputs}.items() <= known.items()


# The events that the product documents.


def test_every_documented_event_is_a_class_with_that_name_as_its_reason() -> None:
    named = {**NODE_EVENTS, **POOL_EVENTS}

    found = {
        kind.reason: kind.regarding
        for name, kind in EVENTS.items()
        if issubclass(kind, events.KubernetesEvent) and name.startswith("CW")
    }

    assert found == named


def test_every_documented_preemption_reason_is_an_event_on_node_and_nodepool() -> None:
    found = {
        kind.reason: (kind.severity, kind.regarding)
        for kind in EVENTS.values()
        if issubclass(kind, events.KubernetesEvent) and kind.speaker == "preemption"
    }

    assert found == dict.fromkeys(PREEMPTION_REASONS, ("Warning", ("Node", "NodePool")))


def test_warnings_are_the_failures_over_quota_missing_capacity_and_preemptions() -> None:
    warnings = {
        kind.reason
        for kind in EVENTS.values()
        if issubclass(kind, events.KubernetesEvent) and kind.severity == "Warning"
    }

    assert warnings == {
        "CWInstanceTypeNotInZone",
        "CWInsufficientCapacity",
        "CWInvalidInstanceType",
        "CWNodeDeliverFail",
        "CWNodePoolNodesRemoveError",
        "CWNodePoolNodesRequestFailed",
        "CWNodePoolQuotaCheckFailed",
        "CWNodeRegistrationFailed",
        "CWOverQuota",
        "CWRegistrationFailedEvent",
        *PREEMPTION_REASONS,
    }


# Docstrings and sizes.


def test_every_module_opens_with_a_docstring() -> None:
    found = [module.name for module in modules() if not ast.get_docstring(module.tree)]

    assert found == []


def test_everything_public_has_a_docstring() -> None:
    found = [
        f"{module.name}.{name}"
        for module in modules()
        for name, node in _public(module.tree, "")
        if not ast.get_docstring(node) and not _is_bare(node)
    ]

    assert [name for name in found if name.split(".")[-1] not in EXPLAINED_BY_BASE] == []


def _public(parent: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, Definition]]:
    for node in parent.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public(node, f"{prefix}{node.name}.")


def _is_bare(node: Definition) -> bool:
    """Whether it is a member of a protocol, which the protocol explains."""
    return len(node.body) == 1 and isinstance(node.body[0], ast.Expr)


def test_modules_and_functions_stay_small() -> None:
    large = {m.name: m.lines for m in modules() if m.lines > MODULE_LINES_MAX}
    functions = {
        name: lines
        for module in modules()
        for name, node in module.definitions()
        if not isinstance(node, ast.ClassDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    }

    found = {**large, **functions}

    assert {name: lines for name, lines in found.items() if name not in OVERSIZED} == {}
    assert set(OVERSIZED) <= set(found), "an exception is no longer needed"


def test_nothing_is_downloaded_by_an_address_of_our_own() -> None:
    address = re.compile(r"https?://\S*(/simple|/packages/|registry|\.whl|\.tgz|\.deb)")

    assert [path for path, text in written() if address.search(text)] == []


def test_nothing_is_left_unfinished() -> None:
    mark = re.compile(r"\bT[O]DO\b|\bF[I]XME\b|Not[I]mplementedError")

    assert [path for path, text in written() if mark.search(text)] == []


class Story(NamedTuple):
    """What a test file says that no test may say: where it sleeps, and what it never calls."""

    sleeps: tuple[str, ...]
    untold: tuple[str, ...]


@cache
def stories() -> tuple[Story, ...]:
    """Every test file, read once for all rules; the trees of all of them would take much memory."""
    return tuple(_story(path) for path in sorted((ROOT / "tests").rglob("*.py")))


INNER = re.compile(r"^[ \t]+(?:async )?def ", re.MULTILINE)
"""A function in a function or in a class."""


def _story(path: Path) -> Story:
    name, sleeps, untold = path.relative_to(ROOT), list[str](), list[str]()
    text = path.read_text(encoding="utf-8")
    if "sleep" not in text and not INNER.search(text):
        return Story((), ())  # To make the tree of each file takes most of the time.
    tree = ast.parse(text)
    for node in ast.walk(tree) if "sleep" in text else _statements(tree):
        match node:
            case ast.Call(func=ast.Name(id="sleep")):
                sleeps.append(f"{name}:{node.lineno}")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr="sleep")):
                sleeps.append(f"{name}:{node.lineno}")
            case ast.FunctionDef() if node.name.startswith("test_"):
                untold += [f"{name}:{inner.lineno} {inner.name}" for inner in _uncalled(node)]
    return Story(tuple(sleeps), tuple(untold))


def _uncalled(test: ast.FunctionDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a test that nothing in the test names."""
    for inner in test.body:
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
            isinstance(use, ast.Name) and use.id == inner.name for use in ast.walk(test)
        ):
            yield inner


def test_no_test_sleeps_by_the_clock() -> None:
    assert [place for story in stories() for place in story.sleeps] == []


def test_every_story_that_a_test_tells_is_run() -> None:
    assert [place for story in stories() for place in story.untold] == []


# Dependencies.


def test_every_dependency_has_a_floor_that_the_lock_file_meets() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    extras = project["optional-dependencies"].values()

    for wanted in (*project["dependencies"], *(one for extra in extras for one in extra)):
        name, _, floor = wanted.partition(";")[0].partition(">=")
        name = name.partition("[")[0].lower()

        assert _version(locked[name]) >= _version(floor) > (), wanted


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def test_the_oldest_python_is_the_same_everywhere() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tools, project = config["tool"], config["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))

    oldest = versions[0]

    assert project["requires-python"] == f">={oldest}"
    assert tools["mypy"]["python_version"] == oldest
    assert tools["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert f"({oldest.replace('.', ', ')})" in (ROOT / "Makefile").read_text(encoding="utf-8")


# Pages.


LONG_PAGES = {
    "CHANGELOG.md": "it grows with each release",
    "deploy/METRICS.md": "`make metrics` writes it",
    "shared/COMMANDS.md": "`make commands` writes it",
    "tests/FAULTS.md": "a table to search, one line for each fault; tests/test_faults_page.py",
    "tests/flow/BEHAVIOURS.md": "the same for each rule; tests/test_behaviours_page.py",
}
"""The pages that may have more words than others, each with its reason."""
WORDS_MAX = 1_500
PAGES = (
    *sorted(ROOT.glob("*.md")),
    *(
        page
        for folder in ("deploy", "services", "shared", "tests")
        for page in sorted((ROOT / folder).rglob("*.md"))
        if "node_modules" not in page.parts
    ),
)
READMES = (
    README,
    *(ROOT / folder / "README.md" for folder in ("tests", "tests/bench")),
    *(ROOT / "deploy" / folder / "README.md" for folder in ("build", "examples")),
    ROOT / "deploy" / "UPGRADES.md",
    *sorted((ROOT / "services").glob("*.md")),
    *(page for page in sorted((ROOT / "shared").glob("*.md")) if page.name != "COMMANDS.md"),
)
NAMED_FILE = re.compile(r"[\w.<>-]+(?:/[\w.<>-]+)*(?:/|\.(?:conf|jsonl|lock|md|py|toml|ya?ml))")
"""A folder or a file, as a README writes it between backticks; `<name>` stands for any name."""
UNDER_A_ROOT = re.compile(r"(?<![\w./-])(?:deploy|services|shared|tests)/[\w./<>-]*")
"""A path from the root of the repository, in prose or in a listing."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_that_people_write_is_short_enough_to_be_read(page: Path) -> None:
    words = len(page.read_text(encoding="utf-8").split())

    assert words <= WORDS_MAX or str(page.relative_to(ROOT)) in LONG_PAGES, f"{words} words"


def test_every_page_that_may_be_long_is_there() -> None:
    assert LONG_PAGES.keys() <= {str(page.relative_to(ROOT)) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_into_the_repository_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))

    broken = [link for link in links if "://" not in link and not _leads(page, link)]

    assert broken == []


def _leads(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("readme", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_that_a_readme_names_exists(readme: Path) -> None:
    text = readme.read_text(encoding="utf-8")
    files = [span for span in re.findall(r"`([^`\n]+)`", text) if NAMED_FILE.fullmatch(span)]
    paths = [path.rstrip(".") for path in UNDER_A_ROOT.findall(text)]

    missing = [name for name in (*files, *paths) if not _exists(readme, name)]

    assert missing == []


def _exists(readme: Path, name: str) -> bool:
    """Whether a path leads somewhere from the root or the README's folder, a bare name below it."""
    pattern = re.sub(r"<[^>]*>", "*", name).rstrip("/")
    below = () if "/" in pattern else readme.parent.glob(f"*/{pattern}")
    places = (*ROOT.glob(pattern), *readme.parent.glob(pattern), *below)
    return any(place.is_dir() or not name.endswith("/") for place in places)


def test_every_metric_that_a_readme_names_exists() -> None:
    named = _named_in_readmes(r"\b(nodepool_[a-z_]+)")

    # The label of the service has the same prefix.
    assert named <= {
        metric.name
        for metric in (
            *metrics.ALL,
            *OF_THE_AGENT,
            *OF_THE_GATEWAY,
            *OF_THE_ARCHIVER,
            *OF_THE_CONSOLE,
            *OF_THE_DRIVER,
        )
    } | {metrics.SERVICE_LABEL}


def test_every_setting_that_a_readme_names_exists() -> None:
    known = {name.upper() for name in settings.FIELDS} | settings.OTHERS

    assert _named_in_readmes(rf"\b{settings.PREFIX}([A-Z_]+)") <= known


def test_every_make_target_that_a_readme_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    assert _named_in_readmes(r"(?:`|^)make ([a-z]+)") <= {
        *re.findall(r"^([a-z]+):", makefile, re.MULTILINE)
    }


def _named_in_readmes(pattern: str) -> set[str]:
    texts = (readme.read_text(encoding="utf-8") for readme in READMES)
    return {name for text in texts for name in re.findall(pattern, text, re.MULTILINE)}
