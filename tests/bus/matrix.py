"""The matrix of rights: every identity, every subject of the contract, and what is allowed.

`python -m bus.matrix` writes its text, which a person reads and a test compares.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bus.accounts import (
    ANONYMOUS,
    CLUSTER,
    ORG,
    OTHER_CLUSTER,
    OTHER_ORG,
    SYSTEM_USER,
    Identity,
    identities,
)
from nodepool.auth.rights import stream_names
from nodepool.contract import events
from nodepool.contract.buckets import BUCKETS
from nodepool.contract.door import DOOR, door_of
from nodepool.contract.messages import Command, Event, Message, Outcome
from nodepool.contract.roles import SENDERS
from nodepool.contract.services import DRIVERS, EDGES, EVERY
from nodepool.contract.subjects import template_of

TEXT = Path(__file__).parent / "rights.txt"
HEAD = f"""\
What each identity may do on the bus. `python -m bus.matrix` writes this, a real server confirms it.

Each block has the subjects first, then who may do what there; all others are denied. A request is
a publish whose reply arrives at the own inbox. <service> is any service, the same one in a subject
and below it; so is <bucket> any bucket, and <Event> any event of that service.

  viewer, editor, owner, agent   users of the organisation {ORG}; the agent is that of {CLUSTER}
  other-viewer, ...              users of the organisation {OTHER_ORG}
  {", ".join(EVERY)}
                                 the services
  feed                           reads the log for all services of a process
  anonymous                      cannot connect
  system                         may do everything in an account that holds no message of these
  gateway                        may also reply once to each message that reaches it
"""
PLACES = (
    ("own cluster", ORG, CLUSTER),
    ("other cluster", ORG, OTHER_CLUSTER),
    ("other organisation", OTHER_ORG, CLUSTER),
)
OUTCOMES = ("CommandAccepted", "CommandRefused")
OF_A_STREAM = (
    *("CREATE", "UPDATE", "DELETE", "INFO", "PURGE", "MSG.GET", "MSG.DELETE", "SNAPSHOT"),
    *("RESTORE", "PEER.REMOVE", "LEADER.STEPDOWN", "CANCEL_MOVE"),
)
OF_A_CONSUMER = ("INFO", "DELETE", "PAUSE", "RESET", "UNPIN", "MSG.NEXT", "LEADER.STEPDOWN")
OF_A_SERVER = (
    *("INFO", "STREAM.NAMES", "STREAM.LIST", "META.LEADER.STEPDOWN", "SERVER.REMOVE"),
    *("ACCOUNT.PURGE.PLATFORM", "ACCOUNT.STREAM.MOVE.PLATFORM.NODEPOOL"),
)
SYSTEM = (
    *("$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.SERVER.X.RELOAD"),
    *("$SYS.REQ.SERVER.X.KICK", "$SYS.REQ.ACCOUNT.PLATFORM.CONNZ", "$SYS.REQ.USER.INFO"),
    *("$SYS.REQ.CLAIMS.UPDATE", "$SYS.ACCOUNT.PLATFORM.CONNECT", "$SYS.SERVER.X.STATSZ"),
)
WIDE = (
    *(
        ">",
        "*",
        "*.>",
        "*.*",
        "np.>",
        "np.*.>",
        "np.cmd.>",
        "np.evt.>",
        "np.evt.*.*.>",
        "np.commit.>",
    ),
    *("np.dead.>", "np-snapshot.>", "np.api.>", f"{DOOR}.>", "$KV.>", "$JS.>", "$JS.API.>"),
    *("$JS.EVENT.>", "$JS.EVENT.ADVISORY.>", "$JS.ACK.>", "$SYS.>", "$SRV.>", "_INBOX.>", "_R_.>"),
    *(f"np.evt.*.{org}.>" for org in (ORG, OTHER_ORG)),
    *(f"np.evt.*.{org}.*.*.*" for org in (ORG, OTHER_ORG)),
    *(f"np.evt.*.{ORG}.{cluster}.*.*" for cluster in (CLUSTER, OTHER_CLUSTER)),
    *(f"np.evt.*.{ORG}.{cluster}.*.>" for cluster in (CLUSTER, OTHER_CLUSTER)),
    *(f"np.cmd.{org}.>" for org in (ORG, OTHER_ORG)),
)


class Section(NamedTuple):
    """Subjects of one kind.

    is_short: whether the text has one line for what is the same for all services.
    """

    title: str
    subjects: Sequence[str]
    is_short: bool = True


class Allowed(NamedTuple):
    """Who may publish on a subject, with or without a reply, and who may subscribe to it."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def sections(everyone: Sequence[Identity]) -> list[Section]:
    """Every subject of the contract, of JetStream and of the server, once, in sections."""
    found = _every_section(everyone)
    seen = set[str]()
    for number, section in enumerate(found):
        new = [subject for subject in dict.fromkeys(section.subjects) if subject not in seen]
        seen.update(new)
        found[number] = section._replace(subjects=new)
    return [section for section in found if section.subjects]


def _every_section(everyone: Sequence[Identity]) -> list[Section]:
    """Every section; those about other places repeat what is about no place."""
    said = {name: _said_by(name) for name in (*EVERY, *DRIVERS.values(), *EDGES, "clock")}
    return [
        *(
            Section(f"commands, {place}", [_at(kind, org, cluster) for kind in _commands()])
            for place, org, cluster in PLACES
        ),
        *(
            Section(f"events of {name}", _events(kinds, name, ORG, CLUSTER), is_short=False)
            for name, kinds in said.items()
        ),
        *(
            Section(f"events, {place}", [*_events_of(said, org, cluster)])
            for place, org, cluster in PLACES[1:]
        ),
        Section("commit records", [f"np.commit.{name}" for name in EVERY]),
        Section("dead letters", [f"np.dead.{name}" for name in EVERY]),
        Section(
            "snapshots",
            [f"np-snapshot.{name}.{x}" for name in EVERY for x in ("manifest", "a.0")],
        ),
        Section(
            "read model", [f"$KV.{bucket}.{org}.x.y" for bucket in BUCKETS for org in (ORG, "z")]
        ),
        Section("JetStream", list(_jetstream())),
        Section("server", SYSTEM),
        Section("inboxes", [f"{prefix}.x" for prefix in _inboxes(everyone)]),
        Section("front door", list(_door())),
        Section("subscriptions with wildcards", WIDE),
    ]


def allowed(subject: str, everyone: Sequence[Identity]) -> Allowed:
    """Who may do what on a subject, as the rights of each identity say."""
    ruled = [(each.name, each.rights) for each in everyone if each.rights is not None]
    return Allowed(
        tuple(name for name, rights in ruled if rights.may_publish(subject)),
        tuple(name for name, rights in ruled if rights.may_subscribe(subject)),
    )


def matrix_text() -> str:
    """The matrix as people read it: subjects with the same rights are in one block."""
    everyone, _ = identities()
    lines = [HEAD]
    for section in sections(everyone):
        blocks = dict[Allowed, list[str]]()
        rows = {subject: allowed(subject, everyone) for subject in section.subjects}
        for subject, who in _join(rows, is_short=section.is_short):
            blocks.setdefault(who, []).append(subject)
        lines.append(f"== {section.title}\n")
        for who, subjects in blocks.items():
            lines += [*subjects, *(f"    {verb}: {_names(each)}" for verb, each in _verbs(who)), ""]
    return "\n".join(lines)


def _verbs(who: Allowed) -> list[tuple[str, tuple[str, ...]]]:
    return [("publish, request", who.publish), ("subscribe", who.subscribe)]


def _names(who: Sequence[str]) -> str:
    """The names as one text; all services have one word together."""
    if {*EVERY} <= {*who}:
        who = ("services", *(name for name in who if name not in EVERY))
    return " ".join(who) or "nobody"


def _join(rows: Mapping[str, Allowed], *, is_short: bool) -> Iterator[tuple[str, Allowed]]:
    """Each subject; once for all services, buckets or events, if the rights are the same."""
    joined = dict[str, set[Allowed]]()
    for subject, who in rows.items():
        form, general = _general(subject, who, is_short=is_short)
        joined.setdefault(form, set()).add(general)
    for subject, who in rows.items():
        form, general = _general(subject, who, is_short=is_short)
        if joined.get(form) == {general}:
            yield form, general
            del joined[form]
        elif form in joined:
            yield subject, who


def _general(subject: str, who: Allowed, *, is_short: bool) -> tuple[str, Allowed]:
    """A subject and its rights with placeholders for a bucket, a service and an event."""
    for bucket in BUCKETS:
        subject = subject.replace(f"KV_{bucket}", "KV_<bucket>")
        subject = subject.replace(f"$KV.{bucket}.", "$KV.<bucket>.")
    parts = subject.split(".")
    named = [name for name in EVERY if name in parts or f"_INBOX_{name}" in parts]
    if is_short and named:
        parts = [part.replace(named[0], "<service>") for part in parts]
        who = Allowed(*(tuple(_self(name, named[0]) for name in each) for each in who))
        if parts[1] == "evt" and parts[-1] not in OUTCOMES:
            parts[-1] = "<Event>"
    return ".".join(parts), who


def _self(name: str, service: str) -> str:
    return "<service>" if name == service else name


def _commands() -> list[type[Command]]:
    return sorted(SENDERS, key=lambda each: each.__name__)


def _said_by(service: str) -> list[type[Event]]:
    """The events of a service; each service also says the outcomes."""
    kinds = [getattr(events, name) for name in sorted(events.__all__)]
    found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Event)]
    own = [kind for kind in found if getattr(kind, "speaker", "") == service]
    outcomes = [kind for kind in found if issubclass(kind, Outcome) and kind is not Outcome]
    return own + (outcomes if service in EVERY else [])


def _events(kinds: Sequence[type[Event]], service: str, org: str, cluster: str) -> list[str]:
    """The subjects of events about a place; a wake is about a service."""
    subjects = [_at(kind, org, cluster).replace("{speaker}", service) for kind in kinds]
    named = [subject.replace("{service}", name) for subject in subjects for name in EVERY]
    return list(dict.fromkeys(named))


def _events_of(said: Mapping[str, Sequence[type[Event]]], org: str, cluster: str) -> Iterator[str]:
    for name, kinds in said.items():
        yield from _events(kinds, name, org, cluster)


def _at(kind: type[Message], org: str, cluster: str) -> str:
    """The subject of a message about a place."""
    parts = {"org": org, "cluster": cluster, "pool": "train", "zone": "z", "machine": "g1"}
    subject = template_of(kind)
    for name, text in parts.items():
        subject = subject.replace(f"{{{name}}}", text)
    return subject


def _jetstream() -> Iterator[str]:
    yield from (f"$JS.API.{verb}" for verb in OF_A_SERVER)
    for stream in stream_names():
        yield from (f"$JS.API.STREAM.{verb}.{stream}" for verb in OF_A_STREAM)
        yield f"$JS.API.DIRECT.GET.{stream}"
        yield f"$JS.API.DIRECT.GET.{stream}.x.y"
        yield from (f"$JS.API.CONSUMER.{verb}.{stream}" for verb in ("CREATE", "LIST", "NAMES"))
        yield f"$JS.API.CONSUMER.CREATE.{stream}.c"
        yield f"$JS.API.CONSUMER.CREATE.{stream}.c.np.evt.>"
        yield f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.c"
        yield from (f"$JS.API.CONSUMER.{verb}.{stream}.c" for verb in OF_A_CONSUMER)
    yield from ("$JS.SNAPSHOT.RESTORE.NODEPOOL.x", "$JS.ACK.NODEPOOL.c.1.2.3.4.5", "$JS.FC.x")


def _inboxes(everyone: Sequence[Identity]) -> list[str]:
    own = [f"_INBOX_{each.user}" for each in everyone]
    return [*dict.fromkeys(("_INBOX", *own)), "_R_"]


def _door() -> Iterator[str]:
    for org in (ORG, OTHER_ORG):
        for subject in (f"np.cmd.{org}.{CLUSTER}.train.ScaleNodePool", f"np.api.{org}.get"):
            yield from (door_of(subject), *([subject] if ".api." in subject else ()))
        yield door_of(f"np.evt.agent.{org}.{CLUSTER}.train.NodeReported")
    yield from ("$SRV.PING", "$SRV.INFO", "$SRV.STATS", "$SRV.PING.gateway")


__all__ = ["ANONYMOUS", "SYSTEM_USER", "TEXT", "allowed", "matrix_text", "sections"]

if __name__ == "__main__":
    TEXT.write_text(matrix_text(), encoding="utf-8")
