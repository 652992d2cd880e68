"""`nodepool doctor`: reports what is wrong with an installation, and how to fix it."""

import os
from importlib import import_module
from typing import TYPE_CHECKING

import click

from nodepool.cli.errors import DONE, REFUSED
from nodepool.cli.formats import Format
from nodepool.cli.layout import escape_text
from nodepool.cli.options import format_option
from nodepool.cli.output import print_lines, print_text
from nodepool.cli.settings import Command, Settings, from_environment
from nodepool.cli.terminal import RED, YELLOW, colour_text, screen
from nodepool.contract.services import EVERY

if TYPE_CHECKING:
    from nodepool.client.doctor.finding import Finding
    from nodepool.client.doctor.server import Storing

_COLOURS = {"problem": RED, "note": YELLOW}


@click.command(cls=Command)
@format_option(but=("wide", "name", "custom-columns"))
@click.pass_context
def doctor(context: click.Context, form: Format) -> int:
    """Say what is wrong with the set-up, and what to do about it.

    All is looked at over the bus, from where the command runs: settings, addresses, TLS and
    credentials, the server, the log and its copies, the services, the read model, dead letters.
    A line begins with ok, note or problem. The exit code is 1 where there is a problem.
    """
    from nodepool.client.doctor.finding import problem

    try:
        settings = context.find_object(Settings) or from_environment()
        settings.check_access()
        storing = _storing()
    except click.UsageError as error:
        name, _, text = error.message.partition(": ")
        findings = [problem("settings", f"{name}: {text}" if text else name, "correct it")]
        _print_all(findings, form)
        return REFUSED
    import asyncio

    findings = asyncio.run(_collect_findings(settings, storing, form))
    if not form.is_table:
        _print_all(findings, form)
    return REFUSED if any(each.status == "problem" for each in findings) else DONE


def _storing() -> "Storing":
    """Return how streams should be stored, as far as the environment says so."""
    from nodepool.client.doctor.server import NOT_KNOWN, Storing
    from nodepool.host.settings import SettingsError, read

    try:
        if not os.environ.keys() & {"NODEPOOL_REPLICAS", "NODEPOOL_MAX_FILE_STORE"}:
            return NOT_KNOWN
        settings = read(os.environ)
        return Storing(settings.replicas, settings.storage_limit)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None


async def _collect_findings(
    settings: Settings, storing: "Storing", form: Format
) -> "list[Finding]":
    """Return all findings; a table prints each finding as soon as it is known."""
    from nodepool.client.doctor.examination import examine
    from nodepool.host.version import version_of
    from nodepool.nats.wire.installed import access_to

    known = [import_module(f"{name}.decide").SERVICE for name in EVERY]
    findings: list[Finding] = []
    async for finding in examine(
        settings.url,
        known,
        access=access_to(settings.url, settings.access),
        org=settings.org,
        storing=storing,
        version=version_of(),
        through=settings.through,
    ):
        findings.append(finding)
        if form.is_table:
            _print(finding)
    return findings


def _print(finding: "Finding") -> None:
    status = finding.status.ljust(7)
    colour = _COLOURS.get(finding.status)
    is_coloured = screen(lambda _, text: f"{text}!").paint("", "") == "!"
    shown = colour_text(status, colour) if colour and is_coloured else status
    print_lines([f"{shown}  {escape_text(finding.check)}: {escape_text(finding.text)}"])
    if finding.fix:
        print_text(f"{' ' * 9}-> {escape_text(finding.fix)}")


def _print_all(findings: "list[Finding]", form: Format) -> None:
    if form.is_table:
        for finding in findings:
            _print(finding)
        return
    checks = [
        {"check": each.check, "status": each.status, "text": each.text, "fix": each.fix}
        for each in findings
    ]
    healthy = all(each.status != "problem" for each in findings)
    report = {"kind": "Diagnosis", "healthy": healthy, "checks": checks}
    form.print_whole([report], single=True)
