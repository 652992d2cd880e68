"""The rules of boot profiles and wipe profiles."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from metal.inventory.addresses import (
    REFERENCE_RULE,
    BootNetwork,
    image_fault,
    reference_fault,
    secret_fault,
)
from metal.inventory.faults import FaultOf
from metal.inventory.model import (
    CONFIG,
    REPORT,
    Boot,
    BootProfile,
    InventoryDocument,
    Rack,
    WipeProfile,
)
from metal.inventory.unique import Unique
from metal.reading import BootTarget
from nodepool.contract import grammar
from nodepool.contract.catalog import type_fault
from nodepool.contract.real_machines import WIPE_MINUTES_MAX

ARGUMENTS_MAX: Final = 128
LINE_MAX: Final = 2_048
"""How many characters of kernel arguments Linux on x86 reads."""
_SECRET: Final = re.compile(r"[^=]*(?:pass|token|secret|key)[^=]*=(?!/).+", re.IGNORECASE)
"""Matches an argument that may hold a secret; it may name a file."""


def list_boot_faults(
    profile: BootProfile, unique: Unique, network: BootNetwork
) -> Iterator[FaultOf]:
    """Yield each fault of a boot profile."""
    yield from unique.boot(profile)
    if bool(profile.org) != bool(profile.cluster):
        field = "org" if profile.cluster else "cluster"
        yield (field,), "is required: a cluster is named by org and cluster together"
    if profile.org and (reason := grammar.organisation(profile.org)):
        yield ("org",), reason
    if profile.cluster and (reason := grammar.dns1123_label(profile.cluster)):
        yield ("cluster",), reason
    if reason := reference_fault(profile.join_token):
        yield ("joinToken",), reason
    if CONFIG in profile.image and profile.target is not BootTarget.UEFI_HTTP:
        yield ("target",), f"must be UefiHttp: no other boot tells the image what {CONFIG} is"
    yield from _boot(profile, "the join token", network)


def list_wipe_faults(
    profile: WipeProfile, unique: Unique, network: BootNetwork
) -> Iterator[FaultOf]:
    """Yield each fault of a wipe profile."""
    yield from unique.wipe(profile)
    if not 1 <= profile.within_minutes <= WIPE_MINUTES_MAX:
        yield ("withinMinutes",), f"must lie between 1 and {WIPE_MINUTES_MAX}"
    if profile.target is not BootTarget.UEFI_HTTP:
        yield ("target",), "must be UefiHttp: no other boot tells the image where to report"
    if REPORT not in profile.image and CONFIG not in profile.image:
        cause = f"must hold {REPORT}, the address of its report, or {CONFIG}"
        yield ("image",), f"{cause}: add ?report={REPORT}"
    yield from _boot(profile, "the right to confirm a wipe", network)


def _boot(boot: Boot, secret: str, network: BootNetwork) -> Iterator[FaultOf]:
    if reason := image_fault(boot.image) or secret_fault(boot.image, secret, network):
        yield ("image",), reason
    arguments = boot.kernel_arguments
    length = sum(map(len, arguments)) + len(arguments)
    if len(arguments) > ARGUMENTS_MAX or length > LINE_MAX:
        cause = f"has more than {ARGUMENTS_MAX} arguments or {LINE_MAX} characters in all"
        yield ("kernelArguments",), cause
        return
    for index, argument in enumerate(arguments):
        path = ("kernelArguments", index)
        if not argument.isprintable() or not argument or " " in argument:
            yield path, "must be one argument: printable characters without spaces"
        elif _SECRET.fullmatch(argument):
            yield path, f"may hold a secret, which each machine would show; {REFERENCE_RULE}"


def list_missing(
    document: InventoryDocument, documents: Sequence[InventoryDocument]
) -> Iterator[FaultOf]:
    """Yield a fault for each profile that a rack needs and no document gives."""
    if not isinstance(document, Rack) or type_fault(document.instance_type):
        return
    kind = document.instance_type
    for profile, purpose in ((BootProfile, "join a cluster"), (WipeProfile, "be wiped")):
        if profile is WipeProfile and not document.wipes:
            continue
        given = (each for each in documents if isinstance(each, profile))
        if not any(each.instance_type == kind for each in given):
            cause = f"{kind} has no {profile.__name__}, so its machines cannot {purpose}; add one"
            yield ("instanceType",), cause
