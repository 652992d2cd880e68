"""Emulated machines with a controller each, and a control plane that has them.

`python -m redfish.run` runs until SIGINT or SIGTERM; `--help` lists its options. If the test bed is
built, a Kubernetes runs beside the control plane, whose kubelets come once machines have booted.
All ports are free ones and the data is in a new folder, so that more than one can run at a time.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web

from nodepool.client import Client, ClientError
from nodepool.local.console import report
from nodepool.local.errors import ServerError
from nodepool.local.ports import HOST
from nodepool.nats.wire.waiting import until_first
from redfish.emulator import emulator
from redfish.front import fronted
from redfish.site import NODE_IMAGE, Rig, Site
from support.constants import H100, ZONE
from testbed.agent import Agent, declare
from testbed.cluster import Cluster, KubectlError, missing
from testbed.kubelets import Kubelets
from testbed.plane import ORG
from testbed.ports import free_port
from testbed.processes import ControlPlane

CLUSTER = "lab"
MACHINES, NODES = 5, 3
WITHIN_S = 420
POLL_S = "2"
MANIFEST = f"""\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {{name: training}}
spec: {{instanceType: {H100}, targetNodes: {NODES}, computeClass: spot}}
"""


class ShownError(Exception):
    """A command that is shown has failed."""


FAULTS = (ServerError, ClientError, ShownError, KubectlError, TimeoutError, OSError)


class Lab:
    """The machines, and who may break their controllers: `POST /MACHINE/silent`, `/answers`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._app = web.Application()
        self._app.router.add_post("/{machine}/{what:silent|answers}", self._break)
        self._runner = web.AppRunner(self._app, access_log=None)
        self.port = free_port()

    async def open(self) -> None:
        """Listen."""
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self.port).start()

    async def close(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _break(self, request: web.Request) -> web.Response:
        rig = self._site.rigs.get(request.match_info["machine"])
        if rig is None:
            return web.Response(status=404, text="no such machine\n")
        self.change(rig, request.match_info["what"])
        return web.Response(text="done\n")

    def change(self, rig: Rig, what: str) -> None:
        """Let the controller of a machine fall silent, or answer again."""
        if what == "silent":
            rig.front.released = asyncio.Event()
            rig.front.held = {""}
        else:
            rig.front.let_go()


class Shown:
    """What a user would type, with what it prints."""

    def __init__(self, url: str) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HOME": os.environ.get("HOME", "/"),
            "NODEPOOL_URL": url,
            "NODEPOOL_ORG": ORG,
            "NODEPOOL_CLUSTER": CLUSTER,
        }

    async def run(self, *words: str, content: str = "", is_quiet: bool = False) -> str:
        """Run `nodepool` with these words, and return its output; raise ShownError if it fails."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nodepool.cli", *words),
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output = (await process.communicate(content.encode()))[0].decode()
        if not is_quiet:
            report(f"\n$ nodepool {' '.join(words)}\n{output.rstrip()}")
        if process.returncode:
            raise ShownError(f"nodepool {' '.join(words)}: {output.strip()}")
        return output


async def show(shown: Shown, site: Site, lab: Lab, *, preempts: bool) -> None:
    """Power three machines on, wipe and free one that is preempted, and lose a controller."""
    report("\neach machine is new: it is wiped before its first stay")
    await site.until_free(MACHINES, WITHIN_S)
    await shown.run("apply", "-f", "-", content=MANIFEST)
    await shown.run("wait", "np/training", "--for", "condition=AtTarget", f"--timeout={WITHIN_S}s")
    await shown.run("machine", "list", "-o", "wide")
    nodes = await shown.run("get", "nodes", "-o", "name", is_quiet=True)
    node = nodes.split()[0].rpartition("/")[2]
    config = site.rigs[node].configs[-1]
    told = ", ".join(f"{key} {config[key]}" for key in ("org", "cluster"))
    report(f"\n{node} has read its configuration: {told}, and its join token")
    if preempts:
        await _preempt(shown, site, node)
    other = next(name for name in site.rigs if name != node)
    report(f"\nthe controller of {other} falls silent")
    lab.change(site.rigs[other], "silent")
    await _until_shown(shown, other, "ControllerSilent")
    await shown.run("machine", "list", "-o", "wide")
    lab.change(site.rigs[other], "answers")


async def _preempt(shown: Shown, site: Site, node: str) -> None:
    """Preempt a Node, and show that its machine is wiped and free afterwards."""
    await shown.run("preempt", node)
    report("its work has two minutes to end; then it is powered off, wiped, and free")
    wiped = site.rigs[node]
    await site.until(lambda: "wipe" in wiped.booted[-1], within_s=WITHIN_S)
    await _until_shown(shown, node, "state: Free")
    await shown.run("machine", "describe", f"{ZONE}/{node}")


async def _until_shown(shown: Shown, machine: str, text: str) -> None:
    """Return once a machine shows a text."""
    async with asyncio.timeout(WITHIN_S):
        while text not in await shown.run("get", "machines", machine, "-o", "yaml", is_quiet=True):
            pass  # Each look takes a process.


async def start(stack: AsyncExitStack) -> tuple[Shown, Site, Lab]:
    """Start one part after another."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodepool-metal-")))
    for name in ("machines", "control-plane", "metal"):
        (folder / name).mkdir()
    report(f"starting {MACHINES} emulated machines, each with a controller that speaks Redfish")
    machines = stack.enter_context(emulator(folder / "machines"))
    report("starting the control plane: NATS, every service, and metal for the real machines")
    plane = ControlPlane(folder / "control-plane", program="redfish.program")
    await asyncio.to_thread(stack.enter_context, plane)
    site = Site(plane.server, folder / "metal", folder / "control-plane", wipes=True)
    await site.open()
    stack.push_async_callback(site.close)
    for _ in range(MACHINES):
        front = await stack.enter_async_context(fronted(machines.machine()))
        site.add(front)
    site.boots = [{"image": f"{NODE_IMAGE}?config={{config}}"}]
    site.declare()
    stack.enter_context(site.process(hurry=False, metal_poll_seconds=POLL_S))
    lab = Lab(site)
    await lab.open()
    stack.push_async_callback(lab.close)
    await _seed(plane.server.url)
    await _start_kubernetes(stack, folder, plane.server.url)
    return Shown(plane.server.url), site, lab


async def _seed(url: str) -> None:
    async with Client(url, org=ORG, cluster=CLUSTER, timeout_s=60) as client:
        await client.clusters.register(CLUSTER, ZONE)
        await client.quotas.set(ZONE, H100, MACHINES)


async def _start_kubernetes(stack: AsyncExitStack, folder: Path, url: str) -> None:
    """Start a Kubernetes with an agent; say why there is none."""
    if reason := missing():
        report(f"without Kubernetes: {reason}")
        return
    report("starting Kubernetes, its agent, and kubelets that come once machines have booted")
    cluster = Cluster(folder / "kubernetes")
    await asyncio.to_thread(stack.enter_context, cluster)
    connection = await asyncio.to_thread(declare, cluster)
    kubelets = Kubelets(url, folder / "kubernetes" / "kubelets.kubeconfig", ORG, CLUSTER)
    stack.enter_context(kubelets)
    settings = {"NODEPOOL_CLUSTER": CLUSTER}
    agent = Agent(folder, connection, url, settings=settings)
    stack.enter_context(agent)
    await asyncio.to_thread(agent.wait_until_ready)
    report(f"  export KUBECONFIG={cluster.user_kubeconfig}")


def explain(url: str, lab: Lab) -> str:
    """Return the commands for a user to try."""
    nodepool = os.path.relpath(Path(sys.executable).with_name("nodepool"))
    return f"""
In another terminal:
  export NODEPOOL_URL={url} NODEPOOL_ORG={ORG} NODEPOOL_CLUSTER={CLUSTER}
  {nodepool} machine list -o wide
  {nodepool} machine describe {ZONE}/m0
  {nodepool} machine maintain in {ZONE}/m4 --reason 'new fan'
  {nodepool} scale nodepool training --replicas 2
  {nodepool} get nodes -w
  curl -X POST http://{HOST}:{lab.port}/m0/silent     its controller is silent until /m0/answers
Ctrl-C stops everything and keeps nothing."""


async def _work(stack: AsyncExitStack, options: Namespace) -> None:
    """Start everything, show what it does, and leave it to the user."""
    shown, site, lab = await start(stack)
    await show(shown, site, lab, preempts=not options.short)
    if not (options.once or options.short):
        report(explain(site.server.url, lab))
        await asyncio.Event().wait()


async def _run(options: Namespace) -> int:
    """Return the exit code once everything is shown, or a signal comes."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with AsyncExitStack() as stack:
            await until_first(stop.wait(), _work(stack, options))
            report("\nstopping; nothing is kept")
    except FAULTS as error:
        report(f"run-metal: {error}")
        return 1
    return 0


def main() -> int:
    """Run, and return the exit code."""
    parser = ArgumentParser(prog="python -m redfish.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--once", action="store_true", help="end after what it shows")
    parser.add_argument("--short", action="store_true", help="end so, and show no preemption")
    return asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
