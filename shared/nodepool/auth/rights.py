"""What each identity may publish and subscribe to, derived from the contract and the services.

The rights are permissions of nats-server, see
https://docs.nats.io/running-a-nats-service/configuration/securing_nats/authorization. Whoever may
publish a request may name any subject for its reply, and the server does not verify that the sender
may publish there: a message that is read, stored again, or an empty one that removes a stream. So
whoever reads has no JetStream in its account, where the reply stays.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from nodepool.contract import events
from nodepool.contract.buckets import BUCKETS
from nodepool.contract.door import DOOR, OBSERVER, QUERIES
from nodepool.contract.events import Wake
from nodepool.contract.keys import token
from nodepool.contract.log import COMMANDS, LOG, SNAPSHOTS, SUBJECTS, covers
from nodepool.contract.roles import Role, commands_of
from nodepool.contract.services import DRIVERS
from nodepool.contract.subjects import filters_of
from nodepool.engine.wakes import wake_subject
from nodepool.service import AnyService, commit_subject

API: Final = "$JS.API"
NEXT: Final = f"{API}.CONSUMER.MSG.NEXT.*.*"
"""The requests that many messages answer, from any consumer of any stream."""
SERVED: Final = "$SRV.>"
"""Where the gateway says what it is, as each NATS service does."""
_REPLIES: Final = "_R_.>"
"""Where the server awaits the reply to a request that has come from another account."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The subjects that one identity may publish and subscribe to; everything else is denied.

    answers: whether it may also reply once to each message that reaches it.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool = False

    def may_publish(self, subject: str) -> bool:
        """Return whether the identity may publish on a subject."""
        return any(covers(allowed, subject) for allowed in self.publish)

    def may_subscribe(self, subject: str) -> bool:
        """Return whether the identity may subscribe to a subject, which may have wildcards.

        The server takes a final `>` for a token of the subject: whoever may subscribe to `np.a.*`
        may subscribe to `np.a.>` as well.
        """
        asked = f"{subject[:-1]}*" if subject.endswith(">") else subject
        return any(covers(allowed, each) for allowed in self.subscribe for each in (subject, asked))


def imports() -> tuple[str, ...]:
    """Return what the services and the gateway publish to JetStream, which is in another account.

    Each subject of messages has a wildcard. The server sends the reply to a request on through an
    import of one subject, and so stores what is read again, but not through one with a wildcard.
    """
    return (
        *SUBJECTS,
        "np-snapshot.>",
        "$KV.>",
        f"{API}.INFO",
        f"{API}.CONSUMER.LIST.*",
        f"{API}.STREAM.PURGE.*",
        *_look_at(["*"]),
        *_read("*"),
    )


def inbox_prefix(user: str) -> str:
    """Return the prefix of the subjects on which a user awaits replies, which are its own alone."""
    return f"_INBOX_{user}"


def service_rights(service: AnyService) -> Rights:
    """Return what a service may do: say its own events, and read the log.

    A service may remove any consumer of the log, because the server knows no right for some of
    them. What is removed is made again; nothing is said in another service's name.
    """
    name = service.name
    buckets = service.projection.buckets if service.projection is not None else ()
    publish = [
        *(f"np.evt.{name}.*.*.*.{kind}" for kind in service.outputs),
        *_driver_says(name),
        *([wake_subject(name)] if Wake.__name__ in service.inputs else ()),
        commit_subject(name),
        f"np.dead.{name}",
        f"np-snapshot.{name}.*",
        f"np-snapshot.{name}.*.*",
        *(f"$KV.{bucket}.>" for bucket in buckets),
        *_look_at(stream_names()),
        *_read(LOG),
        f"{API}.CONSUMER.LIST.{LOG}",
        f"{API}.STREAM.MSG.GET.{SNAPSHOTS}",
        *(subject for bucket in buckets for subject in _read(f"KV_{bucket}")),
        # The service with the read model also measures the log.
        *([f"{API}.INFO"] if buckets else ()),
    ]
    return Rights(tuple(publish), _own_inbox(name))


def feed_rights(user: str) -> Rights:
    """Return the rights to read the log for all services of a process, and to write no message."""
    return Rights((*_look_at(stream_names()), *_read(LOG)), _own_inbox(user))


def provisioner_rights(user: str) -> Rights:
    """Return the rights to make and change streams, and to read and write no message."""
    kept = f"{API}.STREAM.DELETE.{LOG}"
    changes = [
        f"{API}.STREAM.{verb}.{stream}"
        for stream in stream_names()
        for verb in ("CREATE", "UPDATE", "DELETE")
    ]
    publish = (*(each for each in changes if each != kept), *_look_at(stream_names()))
    return Rights(publish, _own_inbox(user))


def gateway_rights(user: str) -> Rights:
    """Return the rights of the gateway: hear organisations, forward to the log, read and reply.

    Only a sender that awaits a reply hears the gateway.
    """
    streams = (LOG, *(f"KV_{bucket}" for bucket in BUCKETS))
    publish = (
        COMMANDS,
        *_observations("*", "*"),
        *_look_at(streams),
        *(subject for stream in streams for subject in _read(stream)),
        _REPLIES,
    )
    return Rights(publish, (f"{DOOR}.>", SERVED, *_own_inbox(user)), answers=True)


def archiver_rights(user: str) -> Rights:
    """Return the rights of the archiver: read the log and the snapshots, and trim the log.

    It writes no message. No other service may trim: the server knows no right for a position.
    """
    publish = (
        *_look_at((LOG, SNAPSHOTS)),
        *_read(LOG),
        f"{API}.STREAM.MSG.GET.{SNAPSHOTS}",
        f"{API}.STREAM.PURGE.{LOG}",
    )
    return Rights(publish, _own_inbox(user))


def operator_rights(user: str) -> Rights:
    """Return the rights of the operator: send every command, use all of JetStream, hear the bus."""
    publish = (COMMANDS, f"{API}.>", "$JS.SNAPSHOT.>", SERVED)
    heard = (*SUBJECTS, "np.cmd.>", "np.evt.>", "np-snapshot.>", "$KV.>", "$JS.EVENT.>")
    return Rights(publish, (*heard, *_own_inbox(user)))


def tenant_rights(role: Role, org: str, user: str) -> Rights:
    """Return what a user of an organisation may do in the account of the organisation."""
    own = token(org)
    publish = (*_commands(role, own, "*"), f"{QUERIES}.{own}.>")
    return Rights(publish, (f"np.evt.*.{own}.>", *_own_inbox(user)))


def agent_rights(org: str, cluster: str, user: str) -> Rights:
    """Return what the agent of a cluster may do in the account of its organisation."""
    own, place = token(org), token(cluster)
    publish = (
        *_commands("agent", own, place),
        *_observations(own, place),
        f"{QUERIES}.{own}.>",
    )
    return Rights(publish, (f"np.evt.*.{own}.{place}.>", *_own_inbox(user)))


def stream_names() -> tuple[str, ...]:
    """Return the name of every stream of the control plane."""
    return (LOG, SNAPSHOTS, *(f"KV_{bucket}" for bucket in BUCKETS))


def _commands(role: Role, org: str, cluster: str) -> Iterator[str]:
    """Yield the subjects of the commands of a role; `*` as the cluster stands for all clusters."""
    for command in commands_of(role):
        yield f"np.cmd.{org}.{cluster}.*.{command.__name__}"


def _observations(org: str, cluster: str) -> Iterator[str]:
    """Yield the subjects of what the agent of a cluster observes."""
    for name in events.__all__:
        kind = getattr(events, name)
        # The base class of some events has no speaker.
        if getattr(kind, "speaker", "") == OBSERVER:
            for each in filters_of(kind):
                yield each.replace("*.*", f"{org}.{cluster}", 1)


def _driver_says(service: str) -> Iterator[str]:
    """Yield the subjects of the observations of a service outside of the bus."""
    for name in events.__all__:
        kind = getattr(events, name)
        if getattr(kind, "speaker", "") == DRIVERS.get(service):
            yield from filters_of(kind)


def _look_at(streams: Sequence[str]) -> Iterable[str]:
    return (f"{API}.STREAM.INFO.{stream}" for stream in streams)


def _read(stream: str) -> Iterable[str]:
    """Return the requests that read a stream: from its leader, and with a consumer."""
    return (
        f"{API}.STREAM.MSG.GET.{stream}",
        f"{API}.CONSUMER.CREATE.{stream}.*",
        f"{API}.CONSUMER.CREATE.{stream}.*.>",
        f"{API}.CONSUMER.INFO.{stream}.*",
        f"{API}.CONSUMER.MSG.NEXT.{stream}.*",
        f"{API}.CONSUMER.DELETE.{stream}.*",
    )


def _own_inbox(user: str) -> tuple[str, ...]:
    return (f"{inbox_prefix(user)}.>",)
