"""The page of every command, made from the classes and their samples: `make commands` writes it."""

import json
from collections.abc import Iterator
from pathlib import Path

from contracts.samples import SAMPLES
from nodepool.contract import commands
from nodepool.contract.keys import token
from nodepool.contract.messages import (
    Command,
    Message,
    OfCluster,
    OfMachine,
    OfOrg,
    OfPool,
    OfZone,
)
from nodepool.contract.reference import Field, describe_model
from nodepool.contract.roles import ROLES, SENDERS
from nodepool.contract.subjects import subject_of

PAGE = Path(__file__).parents[3] / "shared" / "COMMANDS.md"
IDENTITIES: tuple[type[Message], ...] = (OfOrg, OfCluster, OfPool, OfZone, OfMachine)
HEAD = """\
# Commands

Every command, in the order of the code. This page is made from the classes in
`shared/nodepool/contract/commands.py` by `make commands`.

The data of a command is one JSON object on the subject shown; [BUS.md](BUS.md) says how to
send it. What the subject names in angle brackets may be repeated in the data as `org`, `cluster`,
`pool`, `zone` or `machine`, and must then be the same; a dot in a name is written `~` in a subject.
Unknown fields are refused. Names, labels and taints also have to follow the grammar of Kubernetes.
The outcome of a command that breaks a rule names the field and the rule.

## Who may send what

This table is in `shared/nodepool/contract/roles.py`. People of an organisation are its viewers,
editors and owners; the agent speaks for one cluster, and the operator runs the fleet.
"""


def page() -> str:
    """Return the text of the page."""
    kinds = [kind for kind in vars(commands).values() if _is_command(kind)]
    return "\n".join((HEAD, *_senders(), *("\n".join(_section(kind)) for kind in kinds)))


def _senders() -> Iterator[str]:
    """Yield the lines of the table of who may send each command."""
    yield f"| Command | {' | '.join(ROLES)} |"
    yield f"| --- |{' :-: |' * len(ROLES)}"
    for kind, roles in SENDERS.items():
        marks = " | ".join("✓" if role in roles else "" for role in ROLES)
        yield f"| [{kind.__name__}](#{kind.__name__.lower()}) | {marks} |"
    yield ""


def _is_command(kind: object) -> bool:
    return isinstance(kind, type) and kind.__name__ in commands.COMMANDS


def identity(kind: type[Command]) -> set[str]:
    """Return the fields of a command that its subject names, as the class calls them."""
    bases = (base for base in IDENTITIES if issubclass(kind, base))
    return {name for base in bases for name in base.model_fields}


def subject(kind: type[Command]) -> str:
    """Return the subject of a command, with the names of its identity fields in angle brackets."""
    message = kind.model_construct(None, **{name: f"<{name}>" for name in identity(kind)})
    return ".".join(("np", "cmd", *map(token, message.path), kind.__name__))


def example(kind: type[Command]) -> tuple[str, dict[str, object]]:
    """Return the subject and the data of the first sample of a command."""
    sample = next(each for each in SAMPLES if type(each) is kind)
    assert isinstance(sample, Command)
    data = sample.model_dump(mode="json", exclude_unset=True, exclude=identity(kind))
    return subject_of(sample, ""), data


def fields(parent: Field, prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Each field of an object with its path, and those of the objects in it."""
    for field in parent.fields:
        path = f"{prefix}{field.name}"
        yield path, field
        yield from fields(field, f"{path}{'[]' if field.type.startswith('[]') else ''}.")


def _section(kind: type[Command]) -> Iterator[str]:
    about = describe_model(kind, kind.__name__)
    named = identity(kind)
    where, data = example(kind)
    yield f"## {kind.__name__}\n\n{about.about}\n"
    yield f"```text\n{subject(kind)}\n```\n"
    yield f"For example, on `{where}`:\n"
    yield f"```json\n{json.dumps(data, indent=2, ensure_ascii=False)}\n```\n"
    rows = [_row(path, field) for path, field in fields(about) if path not in named]
    if rows:
        yield "| Field | Type | Default | Meaning |\n| --- | --- | --- | --- |"
        yield from rows
        yield ""


def _row(path: str, field: Field) -> str:
    default = "required" if field.required else f"`{field.default}`" if field.default else ""
    kind = field.type.replace("[]Object", "list of objects").replace("Object", "object")
    text = " ".join((field.text or field.about, *field.limits))
    return f"| `{path}` | {kind} | {default} | {text} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
