"""A process that runs replicas of services: signals, the event loop, the garbage collector."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from nodepool.contract.exceptions import describe
from nodepool.host.hosting import Hosted, Hosting
from nodepool.host.settings import Settings, SettingsError, read

FREEZE_S = 600.0
"""How often all objects are frozen, so that the garbage collector does not scan the state."""
LOOK_S = 1.0
"""How often a process looks whether its services have caught up."""

Serving = Callable[[asyncio.Event], Awaitable[None]]
"""The work of a process until the event is set."""


def main(*hosted: Hosted) -> None:
    """Run one replica of each service until SIGTERM or SIGINT, with settings of the environment."""
    with ending_with_a_line(", ".join(each.service.name for each in hosted)):
        settings = read(os.environ)

        async def serve(stop: asyncio.Event) -> None:
            hosting = Hosting(hosted, settings)
            freezing = asyncio.create_task(_freeze_when_ready(hosting))
            try:
                await hosting.run(stop)
            finally:
                freezing.cancel()

        run_until_stopped(serve, settings)


@contextmanager
def ending_with_a_line(name: str) -> Iterator[None]:
    """End the process with one line on standard error if an exception occurs in the context."""
    try:
        yield
    except SettingsError as error:
        sys.exit(f"{name}: {error}")
    except Exception as error:  # The log has its traceback, in one line.
        sys.exit(f"{name}: {describe(error)}")


def run_until_stopped(serve: Serving, settings: Settings) -> None:
    """Run `serve` in an event loop; SIGTERM and SIGINT set the event passed to `serve`."""
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(serve, settings))


async def _serve(serve: Serving, settings: Settings) -> None:
    _configure_collector()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    if settings.stop_with_parent:
        loop.add_reader(sys.stdin.fileno(), stop.set)
    await serve(stop)


async def _freeze_when_ready(hosting: Hosting) -> None:
    """Freeze the state that was read, so that the garbage collector does not traverse it.

    For 100,000 Nodes a traversal takes a good part of a second, in which nothing else happens.
    """
    while True:
        await asyncio.sleep(LOOK_S)
        if hosting.is_caught_up:
            gc.freeze()
            await asyncio.sleep(FREEZE_S)


def _configure_collector() -> None:
    """Run the garbage collector rarely: a state is large, lives long and holds no garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(250_000, 20, 50)
    gc.enable()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # Without uvloop, the standard loop does the same, but slower.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
