"""The storm finds what it is made to find: each rule broken on purpose breaks a storm soon."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from nodepool.events import CWNodeAssigned, PreemptionInProgress
from nodepool.inventory import Inventory, Machine
from nodepool.messages import Message
from nodepool.service import AnyService, Moment, Trouble
from support.auditor import AuditError
from support.stage import services
from support.storm import Storm

SEEDS_MAX = 40
"""How many storms a broken rule may survive; most are found by the first few."""

Decide = Callable[[Any, Message, Moment], Iterator[Message]]


def house(name: str, **changes: Any) -> tuple[AnyService, ...]:
    """Every service, one of them with something else in its place."""
    return tuple(
        replace(service, **changes) if service.name == name else service for service in services()
    )


def named(name: str) -> AnyService:
    (found,) = services(name)
    return found


def found(house: tuple[AnyService, ...]) -> str:
    """What the first storm found that broke; empty where none did."""
    for seed in range(SEEDS_MAX):
        try:
            Storm(seed, house).run()
        except AssertionError as broken:
            return f"{type(broken).__name__}: {broken}"
    return ""
