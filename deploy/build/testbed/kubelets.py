"""The kubelets of a cluster: as machines boot and leave on the bus, Nodes register and fall silent.

What a kubelet does once its Node is there, kwok plays: the lease, `Ready`, and its Pods.
"""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import httpx2
from lightkube import AsyncClient, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import Node, NodeStatus
from lightkube.types import PatchType

from aggregator.resources import resources
from nodepool.contract.catalog import INSTANCE_TYPES
from nodepool.contract.pods import reserved_taint
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.access import NO_ACCESS, Access
from nodepool.nats.wire.connection import connect
from testbed.machines import Machine, after, filters, name_of, read

if TYPE_CHECKING:
    from concurrent.futures import Future

IN_FLIGHT_MAX = 16
RETRY_S = 0.5
BOUND_S = 20.0
FAULTS = (ApiError, httpx2.HTTPError, OSError, TimeoutError)
LEASES = "kube-node-lease"
OTHERS = "nobody"
"""The holder of a lease that kwok is not to renew; it goes on once there is none."""
FOREVER_S = 10_000_000
INFO = {
    "containerRuntimeVersion": "containerd://2.1.0",
    "kernelVersion": "6.8.0",
    "kubeProxyVersion": "",
    "kubeletVersion": "v1.36.3",
    "machineID": "",
    "operatingSystem": "linux",
    "osImage": "simulated",
    "systemUUID": "",
}
STARTUP = reserved_taint("onboard")
"""What kubelets register with: nothing runs on a Node before the control plane knows it."""


class Kubelets:
    """The kubelets of all machines of one cluster, in a thread of their own.

    never: names of machines, and instance types, whose kubelets never come.
    """

    def __init__(
        self, url: str, kubeconfig: Path, org: str, cluster: str, access: Access = NO_ACCESS
    ) -> None:
        self.never: set[str] = set()
        self._url, self._access = url, access
        self._config = KubeConfig.from_file(kubeconfig)
        self._filters = filters(org, cluster)
        self._machines: dict[str, Machine] = {}
        self._muted: dict[str, bool] = {}
        self._recorded: dict[str, bool] = {}
        self._joined: dict[str, str] = {}
        self._due: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._running = asyncio.run_coroutine_threadsafe(self._run(), self._loop)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        assert self._running is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        try:
            self._running.result(BOUND_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(BOUND_S)
            self._loop.close()

    def silence(self, name: str) -> None:
        """Silence the kubelet of this machine, so that its Node's lease ages."""
        self._loop.call_soon_threadsafe(self._mute, name, True)

    def speak(self, name: str) -> None:
        """End the silence of the kubelet of this machine."""
        self._loop.call_soon_threadsafe(self._mute, name, False)

    def _mute(self, name: str, muted: bool) -> None:
        self._muted[name] = muted
        self._mark(name)

    def _mark(self, name: str) -> None:
        self._due.add(name)
        self._wake.set()

    async def _run(self) -> None:
        self._stop, self._wake = asyncio.Event(), asyncio.Event()
        self._client = AsyncClient(self._config, field_manager="kubelet", trust_env=False)
        work = (self._hear, self._watch, self._work)
        tasks = [asyncio.create_task(each()) for each in work]
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in tasks if task.done()]
        for task in (stopping, *tasks):
            task.cancel()
        await asyncio.gather(stopping, *tasks, return_exceptions=True)
        await self._client.close()
        for task in failed:
            task.result()

    async def _hear(self) -> None:
        """Follow the bus from the beginning of its log; act once all stored events are read.

        As a whole, this goes on over any loss of the server.
        """
        connection = await connect(self._url, "kubelets", patience_s=None, access=self._access)
        reader = Reader(connection, STREAM, self._filters)
        await reader.open()
        changed: set[str] = set()
        try:
            while True:
                for entry in await reader.next():
                    event = read(entry)
                    if event is not None:
                        name = name_of(event)
                        machine = self._machines.get(name, Machine())
                        self._machines[name] = after(machine, event)
                        changed.add(name)
                if not reader.pending:
                    self._due |= changed
                    changed.clear()
                    self._wake.set()
        finally:
            await reader.close()
            await connection.close()

    async def _watch(self) -> None:
        """Mark each Node whose status differs from its machine: the Node was created again."""
        while True:
            with suppress(*FAULTS):
                async for _, node in self._client.watch(Node):
                    name = (node.metadata.name if node.metadata else None) or ""
                    machine = self._machines.get(name)
                    if machine is not None and machine.is_up and not _is_said(node, machine):
                        self._mark(name)
            await asyncio.sleep(RETRY_S)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                names, self._due = sorted(self._due), set()
                for begin in range(0, len(names), IN_FLIGHT_MAX):
                    chunk = names[begin : begin + IN_FLIGHT_MAX]
                    done = await asyncio.gather(*map(self._try, chunk))
                    again = [name for name, is_done in zip(chunk, done, strict=True) if not is_done]
                    if again:
                        group.create_task(self._mark_later(again))

    async def _mark_later(self, names: list[str]) -> None:
        await asyncio.sleep(RETRY_S)
        for name in names:
            self._mark(name)

    async def _try(self, name: str) -> bool:
        """Return whether what this kubelet has to do is done."""
        machine = self._machines.get(name)
        if machine is None or not machine.is_up or self.never & {name, machine.instance_type}:
            return True
        try:
            async with asyncio.timeout(BOUND_S):
                return await self._play(name, machine)
        except FAULTS:
            return False

    async def _play(self, name: str, machine: Machine) -> bool:
        node = await self._node(name)
        if node is None:
            # It registers until its Node has joined; a Node that goes later is not its concern.
            if machine.registered and self._joined.get(name) == _boot_id(machine):
                return True
            await self._client.create(cast("Node", Node.from_dict(_document(name, machine))))
        elif node.metadata is not None and node.metadata.deletionTimestamp is not None:
            return False
        else:
            await self._post_status(name, machine, node)
        self._joined[name] = _boot_id(machine)
        await self._post_lease(name, machine)
        return True

    async def _node(self, name: str) -> Node | None:
        try:
            return await self._client.get(Node, name)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    async def _post_status(self, name: str, machine: Machine, node: Node) -> None:
        """Post the resources and the boot of the machine, if the status of the Node differs."""
        if _is_said(node, machine):
            return
        self._recorded.pop(name, None)  # Of a Node that is another one, so is the lease.
        status = {"status": _document(name, machine)["status"]}
        await self._client.patch(NodeStatus, name, status, patch_type=PatchType.MERGE)

    async def _post_lease(self, name: str, machine: Machine) -> None:
        """Take the lease from kwok while the kubelet is silent, and give it back afterwards."""
        is_silent = self._muted.get(name, machine.silent)
        if is_silent == self._recorded.get(name, False):
            return
        spec = (
            {"holderIdentity": OTHERS, "leaseDurationSeconds": FOREVER_S}
            if is_silent
            else {"holderIdentity": None}
        )
        await self._client.patch(
            Lease, name, {"spec": spec}, namespace=LEASES, patch_type=PatchType.MERGE
        )
        self._recorded[name] = is_silent


def _is_said(node: Node, machine: Machine) -> bool:
    """Whether the status of a Node says which boot of the machine this is, and what it has."""
    status = node.status
    if status is None or status.nodeInfo is None or status.nodeInfo.bootID != _boot_id(machine):
        return False
    return resources(machine.instance_type).items() <= (status.capacity or {}).items()


def _boot_id(machine: Machine) -> str:
    return f"{machine.assignment}-{machine.boot}"


def _document(name: str, machine: Machine) -> dict[str, object]:
    """Return the Node as a kubelet registers it."""
    has = resources(machine.instance_type)
    arch = INSTANCE_TYPES[machine.instance_type].arch
    taint = {"key": STARTUP.key, "value": STARTUP.value, "effect": STARTUP.effect}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": arch,
                "kubernetes.io/os": "linux",
            },
        },
        "spec": {"taints": [taint]},
        "status": {
            "capacity": has,
            "allocatable": has,
            "nodeInfo": {**INFO, "bootID": _boot_id(machine), "architecture": arch},
        },
    }
