"""The settings that all commands share, and the click classes that give them their options."""

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from nodepool.cli import BROKEN_PIPE
from nodepool.cli.times import duration_s

if TYPE_CHECKING:
    from nodepool.client import Client

DEFAULT_PORT = "4222"
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one command.

    url: the NATS server.
    org, cluster: the organisation and cluster that the command is about.
    timeout_s: how long a reply or an outcome may take, in seconds.
    """

    url: str
    org: str = "demo"
    cluster: str = "demo"
    timeout_s: float = 10.0

    def run(self, work: "Callable[[Client], Awaitable[int | None]]") -> int:
        """Runs `work` with a connected client; its exit code, or 0 where it returns None."""
        import asyncio

        from nodepool.client import Client

        async def connected() -> int:
            client = Client(
                self.url,
                org=self.org,
                cluster=self.cluster,
                timeout_s=self.timeout_s,
                source="nodepool-cli",
            )
            async with client:
                return await work(client) or 0

        return asyncio.run(connected())


def port(environment: Mapping[str, str] = os.environ) -> int:
    """The port of the server on this machine; raises a usage error for an invalid one."""
    text = environment.get("NODEPOOL_NATS_PORT") or DEFAULT_PORT
    if not (text.isdecimal() and 0 < int(text) < 65_536):
        raise click.UsageError(f"NODEPOOL_NATS_PORT: {text!r} is not a port; use 1 to 65535")
    return int(text)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings before any option; raises a usage error for an invalid value."""
    return Settings(
        url=environment.get("NODEPOOL_URL") or f"nats://127.0.0.1:{port(environment)}",
        org=_scope("NODEPOOL_ORG", environment.get("NODEPOOL_ORG") or "demo"),
        cluster=_scope("NODEPOOL_CLUSTER", environment.get("NODEPOOL_CLUSTER") or "demo"),
    )


def _scope(field: str, name: str) -> str:
    if len(name) > 63 or not NAME.fullmatch(name):
        raise click.UsageError(f"{field}: {name!r} must be lower case letters, digits and '-'")
    return name


def _apply_option(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Puts the value of a common option into the settings."""
    if value is None or context.resilient_parsing:
        return
    settings = context.find_object(Settings) or from_environment()
    match option.name:
        case "url":
            context.obj = replace(settings, url=value)
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
        raise click.UsageError(f"--timeout: {error}") from None
    if not 0 < timeout <= 86_400:
        raise click.UsageError(f"--timeout: {value} is out of range; use 1 to 86400 seconds")
    return timeout


def common_options(*, hidden: bool, timeout: bool = True) -> list[click.Option]:
    """The options that every command takes; `hidden` leaves them out of its help."""
    helps = {
        "url": "The NATS server.  [env var: NODEPOOL_URL, or NODEPOOL_NATS_PORT for this machine;"
        " default: nats://127.0.0.1:4222]",
        "org": "The organisation.  [env var: NODEPOOL_ORG; default: demo]",
        "cluster": "The cluster.  [env var: NODEPOOL_CLUSTER; default: demo]",
    }
    declared = [([f"--{name}"], text, name.upper()) for name, text in helps.items()]
    if timeout:
        text = "How long a reply or an outcome may take.  [default: 10]"
        declared.append((["request_timeout", "--timeout"], text, "SECONDS"))
    return [
        click.Option(
            names,
            help=text,
            metavar=metavar,
            hidden=hidden,
            expose_value=False,
            callback=_apply_option,
        )
        for names, text, metavar in declared
    ]


class Command(click.Command):
    """A command that takes the common options too."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        own = {name for option in self.params for name in option.opts}
        timeout = "--timeout" not in own
        self.params += common_options(hidden=True, timeout=timeout)

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command and returns its exit code; click would end the program at a pipe."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return BROKEN_PIPE


class Group(click.Group):
    """A group of commands that take the common options."""

    command_class = Command


Group.group_class = Group
