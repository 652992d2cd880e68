"""A control plane of which one service fails on one input, or on one key."""

from collections.abc import Generator, Iterator, Set
from dataclasses import dataclass, replace
from typing import Any

from nodepool.contract.events import Wake
from nodepool.contract.messages import Event, Message, OfPool
from nodepool.service import AnyService, Context
from support.constants import INJECTED
from support.services import services
from support.world_harness import WorldHarness


@dataclass
class Failing:
    """A service of which one decision fails: that on the n-th input of a class.

    left: how many such inputs are still to come, the one that fails among them.
    """

    service: str
    input: str
    left: int

    def world(self) -> WorldHarness:
        """A control plane with this service."""
        return WorldHarness(*map(self._wrapped, services()))

    def _wrapped(self, service: AnyService) -> AnyService:
        """The service, which fails if it is the one."""
        reconciler = service.reconciler
        if service.name != self.service or reconciler is None:
            return service

        def decide(
            state: object, message: object, context: Context
        ) -> Generator[Message, object, None]:
            yield from service.decide(state, message, context)
            self._counted(type(message).__name__)

        def reconcile(
            state: object, key: object, context: Context
        ) -> Generator[Message, object, None]:
            # A reconciler is pure: asking whether there is an event changes nothing.
            if next(reconciler.reconcile(state, key, context), None) is not None:
                self._counted(Wake.__name__)
            yield from reconciler.reconcile(state, key, context)

        return replace(service, decide=decide, reconciler=replace(reconciler, reconcile=reconcile))

    def _counted(self, name: str) -> None:
        if name == self.input:
            self.left -= 1
            if not self.left:
                raise RuntimeError(INJECTED)


def inputs(service: str) -> Iterator[str]:
    """The classes of input on which a service fails; commands are refused, and sent again."""
    (found,) = services(service)
    for name, kind in found.inputs.items():
        if issubclass(kind, Event):
            yield name


def given_failing(service: str, name: str, number: int = 1) -> WorldHarness:
    """A world in which a service fails on the n-th input of a class."""
    return Failing(service, name, number).world()


def failing_on(broken: Set[tuple[str, str]], service: AnyService) -> AnyService:
    """The service, which fails as long as its name and a key are in `broken`.

    Only decisions fail, so a replay is not concerned.
    """
    name, reconciler = service.name, service.reconciler
    assert reconciler is not None

    def fail(key: str) -> None:
        if (name, key) in broken:
            raise RuntimeError(INJECTED)

    # The states and keys of the services have no type in common.
    def decide(state: Any, message: Any, context: Context) -> Generator[Any, Any, None]:
        known = state.templates if name == "lifecycle" else state.pools
        # What a service does not know, such as an invalid NodePool, it does not decide on.
        if isinstance(message, OfPool) and message.key in known:
            fail(message.key)
        return service.decide(state, message, context)

    def reconcile(state: Any, key: Any, context: Context) -> Generator[Any, Any, None]:
        fail(key)
        yield from reconciler.reconcile(state, key, context)

    return replace(service, decide=decide, reconciler=replace(reconciler, reconcile=reconcile))


def given_broken(name: str, broken: Set[tuple[str, str]]) -> WorldHarness:
    """A world whose service of this name fails as long as the name and a key are in `broken`."""
    return WorldHarness(
        *(failing_on(broken, each) if each.name == name else each for each in services())
    )
