"""Running a program on this machine as a Pod of a NodePool: it starts and ends with the Pod."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nodepool.cli import INTERRUPTED
from nodepool.cli.errors import REFUSED, CliError
from nodepool.cli.explained import why_pods_wait
from nodepool.cli.output import print_note
from nodepool.cli.pod_state import PodState
from nodepool.client import Client, ClientError, NoOutcome, Refused, Unreachable
from nodepool.contract.documents import condition
from nodepool.contract.pods import Pod
from nodepool.local.process import LocalProcess

if TYPE_CHECKING:
    from nodepool.client.pods import PodEvent

FIRST_REASON_S, REASON_S = 1.0, 10.0
"""How long a Pod waits before the reason is printed, and how often it is looked up, in seconds."""
PAUSE_S, PAUSE_MAX_S = 1.0, 30.0
"""The first and the longest pause before another attempt, in seconds; each pause is twice as long.
There is no pause after a program that ran for longer than the longest pause."""
IDLE_S = 5.0
"""How long reading an event that is certain to arrive may take, in seconds."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A program and the Pod that it runs as.

    pool, pod: the Pod, and its NodePool.
    command: the program and its arguments.
    restarts: whether the program is started again on another Node if its Pod loses its Node.
    """

    pool: str
    pod: Pod
    command: tuple[str, ...]
    restarts: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """How one Pod ended.

    code: the exit code of the program; the exit code of the command line if it never ran.
    is_taken: whether the Pod was taken from its Node, or was gone before it had a Node.
    ran_s: how long the program ran, in seconds.
    """

    code: int
    is_taken: bool = False
    ran_s: float = 0.0


class Runner:
    """Runs a workload to its end, with as many Pods as necessary.

    The runner prints only to standard error; standard output belongs to the program.
    """

    def __init__(self, client: Client, workload: Workload) -> None:
        self._client = client
        self._workload = workload
        self._name = workload.pod.name
        self._delete = f"nodepool fleet delete-pod {workload.pool} {self._name}"
        self._inbox: asyncio.Queue[PodEvent | Exception | None] = asyncio.Queue()
        self._state = PodState()
        self._may_exist = False
        self._has_run = False
        self._process: LocalProcess | None = None
        self._interrupts = 0
        self._interrupted = asyncio.Event()

    async def run(self) -> int:
        """Run the program; return its exit code, or that of this command if it never ran."""
        self._client.session.require_bus("follow a Pod")
        position = await self._client.events.newest_position()
        self._state = PodState(earlier=position)
        watching = asyncio.create_task(self._watch(position))
        self._listen_to_signals(asyncio.current_task())
        pause_s = 0.0
        try:
            while True:
                end = await self._attempt()
                is_done = self._has_run and end.code == 0
                if is_done or self._interrupts or not (self._workload.restarts and end.is_taken):
                    return end.code
                pause_s = 0.0 if end.ran_s > PAUSE_MAX_S else min(pause_s * 2, PAUSE_MAX_S)
                await self._pause(pause_s)
                pause_s = max(pause_s, PAUSE_S / 2)
        except asyncio.CancelledError:
            return INTERRUPTED
        finally:
            watching.cancel()

    # Following what happens outside this process.

    async def _watch(self, position: int) -> None:
        """Put what the log says of the Pod into the inbox."""
        try:
            events = self._client.fleet.watch_pod(self._workload.pool, self._name, after=position)
            async with aclosing(events):
                async for event in events:
                    self._inbox.put_nowait(event)
        except Exception as error:
            self._inbox.put_nowait(error)

    def _listen_to_signals(self, task: "asyncio.Task[object] | None") -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._interrupt, task)

    def _interrupt(self, task: "asyncio.Task[object] | None") -> None:
        """Ask the program to end at the first interrupt; kill it at the second."""
        self._interrupts += 1
        self._interrupted.set()
        self._inbox.put_nowait(None)
        if self._interrupts > 1:
            if self._process is not None:
                self._process.kill()
            elif task is not None:
                task.cancel()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._interrupted.wait()

    async def _next(self) -> None:
        """Wait for the next event or interrupt; raise the error that ended reading the log."""
        item = await self._inbox.get()
        if isinstance(item, Exception):
            raise item
        if item is not None:
            self._state = self._state.after(item)

    # Running one Pod after the other.

    async def _attempt(self) -> End:
        """Run one Pod from its creation to its end."""
        self._state = self._state.next()
        try:
            await self._create()
            if await self._is_placed():
                return await self._run_on_node()
            if self._interrupts:
                return End(INTERRUPTED)
            print_note(f"Pod {self._name} is gone before it had a Node: {self._state.why}")
            return End(REFUSED, is_taken=True)
        finally:
            await self._leave()

    async def _create(self) -> None:
        """Create the Pod when the previous Pod is gone.

        From the second Pod on, try again until the Pod exists.
        """
        in_doubt = False
        while self._may_exist and not self._interrupts:
            await self._pause(PAUSE_S)
            print_note(f"trying again to delete Pod {self._name}")
            await self._leave()
        while not self._interrupts:
            self._may_exist = True
            try:
                await self._client.fleet.create_pod(self._workload.pool, self._workload.pod)
                return
            except Refused as error:
                # An earlier attempt without an outcome may have created the Pod.
                if in_doubt and await self._appears():
                    return
                self._may_exist = in_doubt
                if error.reason == "Conflict":
                    hint = f"if its program was killed, delete it with '{self._delete}'"
                    raise CliError(f"{error}; {hint}") from None
                raise
            except (NoOutcome, Unreachable) as error:
                if not self._has_run:
                    raise
                in_doubt = True
                print_note(f"{error}; trying again")
                await self._pause(PAUSE_S)

    async def _appears(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_S):
                while self._state.phase is None:
                    await self._next()
        return self._state.phase is not None

    async def _is_placed(self) -> bool:
        """Wait until the Pod has a Node; return False if it is gone or on an interrupt."""
        printed, wait_s = "", FIRST_REASON_S
        while not self._interrupts and self._state.phase != "Gone":
            if self._state.phase in ("Running", "Terminating"):
                return True
            try:
                async with asyncio.timeout(wait_s):
                    await self._next()
            except TimeoutError:
                reason = await why_pods_wait(self._client, self._workload.pool)
                wait_s = REASON_S
                if reason not in ("", printed):
                    print_note(f"Pod {self._name} waits for a Node: {reason}")
                    printed = reason
        return False

    async def _run_on_node(self) -> End:
        """Run the program on the Node of the Pod, to its end."""
        process = self._process = await LocalProcess.start(
            self._workload.command, self._environment(), grace_s=self._workload.pod.grace_s
        )
        pod, clock = self._state.pod, asyncio.get_running_loop().time
        began, node = clock(), pod.node if pod is not None else ""
        self._has_run = True
        print_note(f"Pod {self._name} runs on Node {node}")
        ended = asyncio.create_task(process.wait())
        try:
            await self._obey(process, ended)
        finally:
            if not ended.done():
                process.terminate(self._workload.pod.grace_s)
            code = await ended
            self._process = None
        if self._state.is_taken and not self._interrupts:
            print_note(f"Pod {self._name} leaves Node {node}: {self._state.why}")
        return End(code, self._state.is_taken, clock() - began)

    def _environment(self) -> Mapping[str, str]:
        pod = self._state.pod
        assert pod is not None, "a Pod that has a Node exists"
        own = {"NODEPOOL_NODE": pod.node, "POD_NAME": pod.name, "POD_UID": str(pod.number)}
        return {**os.environ, **own}

    async def _obey(self, process: LocalProcess, ended: "asyncio.Task[int]") -> None:
        """Wait for the program to end; end it if its Pod ends or the user interrupts."""
        warned = False
        while True:
            if self._interrupts:
                process.terminate(self._workload.pod.grace_s)
            if self._state.ends:
                process.terminate(self._state.grace_s)
            elif self._state.is_preempted and not warned:
                print_note("its Node is being preempted: SIGTERM follows when it is drained")
                warned = True
            event = asyncio.create_task(self._next())
            try:
                await asyncio.wait({event, ended}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    return
                await event
            finally:
                event.cancel()

    # Cleaning up, however the Pod ended.

    async def _leave(self) -> None:
        """Delete the Pod, if it may exist, and hand back its Node if it is preempted."""
        if self._state.phase == "Gone":
            self._may_exist = False
        if not self._may_exist:
            return
        is_early = self._state.is_preempted and not self._state.ends
        pool, name = self._workload.pool, self._name
        try:
            await self._client.fleet.delete_pod(pool, name, grace_s=0)
            if is_early:
                await self._acknowledge()
        except Refused as error:
            if error.reason != "NotFound":
                print_note(f"Pod {name} is not deleted: {error}")
        except ClientError as error:
            print_note(f"Pod {name} may still be there: {error}; delete it with '{self._delete}'")
            return
        self._may_exist = False

    async def _acknowledge(self) -> None:
        """Give the preempted Node back at once, unless something else still runs on it."""
        pod = self._state.pod
        assert pod is not None, "the Node of a Pod was preempted"
        with suppress(TimeoutError, ClientError):
            async with asyncio.timeout(IDLE_S):
                async with aclosing(self._client.nodes.follow(pod.node)) as documents:
                    async for document in documents:
                        if document is None:
                            return
                        if condition(document, "CWActive", "status") == "False":
                            break
                await self._client.nodes.acknowledge_preemption(self._workload.pool, pod.node)
                print_note(f"Node {pod.node} is given back")
