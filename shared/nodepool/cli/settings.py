"""The settings that all commands share, and the click classes that give them their options."""

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import click
from click.core import augment_usage_errors

from nodepool.cli import BROKEN_PIPE
from nodepool.cli.arguments import normalise_arguments
from nodepool.cli.clock import show_moment
from nodepool.cli.output import print_note
from nodepool.cli.times import duration_s
from nodepool.host.settings import (
    SettingsError,
    check_access,
    check_names,
    is_service_link,
    read_access,
)
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.addresses import address_fault, without_password

if TYPE_CHECKING:
    from nodepool.client import Client
    from nodepool.client.admin import Versions
    from nodepool.client.backend import Through
    from nodepool.client.past.session import Moment

DEFAULT_PORT = "4222"
T = TypeVar("T")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one command.

    url: the NATS server, or several servers of one NATS cluster, separated by commas.
    org, cluster: the organisation and cluster that the command is about.
    timeout_s: how long a reply or an outcome may take, in seconds.
    access: files with the certificates to trust, and with the client's own credentials.
    through: how to work, with the bus itself or through the gateway; None if the credentials say.
    at: the position of the log or the time that the command shows; None for the present.
    archive: where the archive is, for `at`; empty for nowhere.
    """

    url: str
    org: str = "demo"
    cluster: str = "demo"
    timeout_s: float = 10.0
    access: Access = NO_ACCESS
    through: "Through | None" = None
    at: "Moment | None" = None
    archive: str = ""

    def run(
        self, work: "Callable[[Client], Awaitable[int | None]]", *, patient: bool = False
    ) -> int:
        """Run `work` as `result` does; return its exit code, or 0 if it returns None."""
        return self.result(work, patient=patient) or 0

    def result(self, work: "Callable[[Client], Awaitable[T]]", *, patient: bool = False) -> T:
        """Run `work` with a connected client and return what `work` returns.

        patient: whether the client may wait long; it then reports a lost and a restored server.
        """
        import asyncio

        from nodepool.cli.tracing import trace_messages
        from nodepool.cli.waiting_line import shown_while

        self.check_access()
        address = without_password(self.url)

        async def connect_and_work() -> T:
            client = self._client()

            def waiting(seconds: float) -> str:
                """Return what the line says that appears after a while."""
                received = client.session.messages_received
                return (
                    f"waiting for {address}: {seconds:.0f} s, {received} messages"
                    " received; Ctrl-C stops"
                )

            async with nullcontext() if patient else shown_while(waiting), client:
                if patient:
                    client.session.observe(
                        lambda what: print_note(f"{what} is gone; waiting for it"),
                        lambda what: print_note(f"{what} is back"),
                    )
                show_moment(client.session.moment)
                return await work(client)

        with trace_messages():
            return asyncio.run(connect_and_work())

    def _client(self) -> "Client":
        from nodepool.client import Client

        client = Client(
            self.url,
            org=self.org,
            cluster=self.cluster,
            timeout_s=self.timeout_s,
            source="nodepool-cli",
            access=self.access,
            through=self.through,
        )
        return client if self.at is None else client.at(self.at, self.archive)

    def refuse_past(self, option: str) -> None:
        """Raise a usage error if the command looks at the past, where an option has no meaning."""
        if self.at is not None:
            raise click.UsageError(f"{option}: has no meaning with --at; leave one of them out")

    def versions(self) -> "Versions":
        """Return the versions at work; raise `Unreachable` if no server replies in a short time."""
        from nodepool.client.admin import CONNECTING_S

        hurried = replace(self, timeout_s=min(self.timeout_s, CONNECTING_S))
        return hurried.result(lambda client: client.admin.versions())

    def check_access(self) -> None:
        """Raise a usage error if a file and the address contradict each other."""
        try:
            check_access(self.access, self.url)
        except SettingsError as error:
            raise click.UsageError(str(error)) from None


def port(environment: Mapping[str, str] = os.environ) -> int:
    """Return the port of the server on this machine; raise a usage error for an invalid port."""
    return _port(environment, "NODEPOOL_NATS_PORT", DEFAULT_PORT)


def console_port(default: int) -> int:
    """Return the first port to try for the console; raise a usage error for an invalid port."""
    return _port(os.environ, "NODEPOOL_CONSOLE_PORT", str(default))


def _port(environment: Mapping[str, str], name: str, default: str) -> int:
    text = environment.get(name) or default
    text = default if is_service_link(name, text) else text
    if not (text.isdecimal() and 0 < int(text) < 65_536):
        raise click.UsageError(f"{name}: {text!r} is not a port; use 1 to 65535")
    return int(text)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings before any option.

    Raises a usage error for an invalid value or an unknown name.
    """
    try:
        check_names(environment)
        access = read_access(environment)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    url = environment.get("NODEPOOL_URL")
    url = f"nats://127.0.0.1:{port(environment)}" if url is None else _url("NODEPOOL_URL", url)
    return Settings(
        url=url,
        org=_scope("NODEPOOL_ORG", environment.get("NODEPOOL_ORG", _own_organisation(access))),
        cluster=_scope("NODEPOOL_CLUSTER", environment.get("NODEPOOL_CLUSTER", "demo")),
        access=access,
        through=_through(environment.get("NODEPOOL_THROUGH", "")),
    )


def _own_organisation(access: Access) -> str:
    """Return the organisation of the user of these credentials; `demo` if they name none."""
    if not (access.nkey_file or access.password_file):
        return "demo"
    # Imported here, because most programs have no credentials.
    from nodepool.client.holder import holder_of

    holder = holder_of(access)
    return holder.org if holder is not None else "demo"


def _through(text: str) -> "Through | None":
    match text:
        case "":
            return None
        case "bus" | "gateway":
            return text
    raise click.UsageError(f"NODEPOOL_THROUGH: {text!r} must be 'bus' or 'gateway'")


def _url(field: str, url: str) -> str:
    fault = address_fault(url)
    if fault is not None:
        raise click.UsageError(f"{field}: {fault}")
    return url


def _scope(field: str, name: str) -> str:
    if len(name) > 63 or not NAME.fullmatch(name):
        raise click.UsageError(f"{field}: {name!r} must be lower case letters, digits and '-'")
    return name


def _apply_option(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Put the value of a common option into the settings."""
    if value is None:
        return
    settings = context.find_object(Settings) or from_environment()
    match option.name:
        case "url":
            context.obj = replace(settings, url=_url("--url", value))
        case "org":
            context.obj = replace(settings, org=_scope("--org", value))
        case "cluster":
            context.obj = replace(settings, cluster=_scope("--cluster", value))
        case "request_timeout":
            context.obj = replace(settings, timeout_s=_timeout_s(value))


def _timeout_s(value: str) -> float:
    try:
        timeout = float(value) if value.replace(".", "", 1).isdecimal() else duration_s(value)
    except ValueError as error:
        raise click.UsageError(f"--request-timeout: {error}") from None
    if not 0 < timeout <= 86_400:
        message = f"--request-timeout: {value} is out of range; use 1 to 86400 seconds"
        raise click.UsageError(message)
    return timeout


def common_options(*, hidden: bool) -> list[click.Option]:
    """Return the options that every command takes; `hidden` leaves them out of its help."""
    helps = {
        "url": "The NATS server.  [env var: NODEPOOL_URL, or NODEPOOL_NATS_PORT for this machine;"
        " default: nats://127.0.0.1:4222]",
        "org": "The organisation.  [env var: NODEPOOL_ORG; default: demo]",
        "cluster": "The cluster.  [env var: NODEPOOL_CLUSTER; default: demo]",
    }
    declared = [(name, text, name.upper()) for name, text in helps.items()]
    text = "How long a reply or an outcome may take.  [default: 10s]"
    declared.append(("request-timeout", text, "DURATION"))
    return [
        click.Option(
            [f"--{name}"],
            help=text,
            metavar=metavar,
            hidden=hidden,
            expose_value=False,
            callback=_apply_option,
        )
        for name, text, metavar in declared
    ]


class Command(click.Command):
    """A command that also takes the common options, and flags in all of kubectl's spellings."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # As click passes them.
        self.params += common_options(hidden=True)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words of the command line into the context; return the remaining words."""
        # With its command attached, an error can name the command's help.
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, normalise_arguments(args, self.get_params(ctx)))

    def invoke(self, ctx: click.Context) -> object:
        """Run the command and return its exit code, also if a pipe is closed.

        Without this, click would end the program at a closed pipe.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return BROKEN_PIPE


class Group(click.Group):
    """A group of commands that take the common options."""

    command_class = Command


Group.group_class = Group
