"""`nodepool api-resources` and `api-versions`: the types of objects and their versions."""

import click

from nodepool.cli.errors import DONE
from nodepool.cli.layout import Table
from nodepool.cli.names import KINDS, NODE, NODEPOOL, Kind
from nodepool.cli.options import no_headers_option
from nodepool.cli.output import print_lines, print_text
from nodepool.cli.settings import Command

HEADER = ("NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND")
GROUP_VERSION = "compute.coreweave.com/v1alpha1"


@click.command("api-resources", cls=Command)
@click.option("-o", "--output", "form", type=click.Choice(["name", "wide"]), help="Output format.")
@no_headers_option()
def api_resources(form: str | None, no_headers: bool) -> int:
    """List the types of objects."""
    if form == "name":
        print_text("\n".join(f"{kind.plural}{_group(kind)}" for kind in KINDS))
        return DONE
    is_wide = form == "wide"
    table = Table((*HEADER, "VERBS") if is_wide else HEADER)
    if no_headers:
        table = table.without_header()
    lines = (_line(kind) + ((_verbs(kind),) if is_wide else ()) for kind in KINDS)
    print_lines(table.lines(lines))
    return DONE


@click.command("api-versions", cls=Command)
def api_versions() -> int:
    """List the versions of the format of manifests."""
    print_text(GROUP_VERSION)
    return DONE


def _line(kind: Kind) -> tuple[str, ...]:
    # Other types, such as quotas and capacity, have no format that Kubernetes knows.
    versions = {NODEPOOL: GROUP_VERSION, NODE: "v1"}
    return (kind.plural, kind.short, versions.get(kind, ""), "false", kind.title)


def _group(kind: Kind) -> str:
    return ".compute.coreweave.com" if kind is NODEPOOL else ""


def _verbs(kind: Kind) -> str:
    if kind is NODEPOOL:
        return "create,delete,get,list,patch,update,watch"
    return "get,list,watch"
