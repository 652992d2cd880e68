"""Measures the control plane: `make bench`, or `make bench ARGS="--runs 5 --only pipeline nodes"`.

Times on a shared machine vary, so each row is a ratio of two measurements of the same run, or what
one unit costs. Where there are several runs, it is their median, with the lowest and the highest.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Sequence

from bench import karpenter, kubernetes
from bench.neighbours import neighbours
from bench.peers import Resize, compare_peers
from bench.pipeline import bare, control_plane
from bench.preemption import preemptions
from bench.reading import reading_costs
from bench.restart import restart
from nodepool.engine.waiting import WAITING_MAX
from testbed.cluster import missing

RATIO_MAX = 20
"""How many times longer a command may take whatever another organisation does."""


def _spread(values: Sequence[float], digits: int = 0) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def _percentile(took: Sequence[float], part: float) -> float:
    return took[min(len(took) - 1, int(part * len(took)))] * 1e3


def _pipeline(options: argparse.Namespace) -> None:
    rates, bare_rates, ratios, p50, p99 = [], [], [], [], []
    for _ in range(options.runs):
        seconds, took, sizes, _ = control_plane(options.commands, 0, options.window)
        bare_seconds, _ = bare(options.commands, options.window, sizes)
        rates.append(options.commands / seconds)
        bare_rates.append(options.commands / bare_seconds)
        ratios.append(bare_seconds / seconds)
        p50.append(_percentile(took, 0.5))
        p99.append(_percentile(took, 0.99))
    print(f"pipeline, commands/s             {_spread(rates)}")
    print(f"bare pipeline, commands/s        {_spread(bare_rates)}")
    print(f"pipeline / bare pipeline         {_spread(ratios, 2)}   (budget: at least 0.50)")
    print(f"  status after, ms               p50 {_spread(p50)}, p99 {_spread(p99)}")


def _nodes(options: argparse.Namespace) -> None:
    created, used = [], []
    nodes = options.pools * options.nodes
    for _ in range(options.runs):
        window = min(options.pools, WAITING_MAX)
        seconds, _, _, cpu_s = control_plane(options.pools, options.nodes, window)
        created.append(seconds)
        used.append(cpu_s / nodes * 1e6)
    print(f"{options.pools} pools of {options.nodes} Nodes, s       {_spread(created, 1)}")
    print(f"  Nodes/s                        {_spread([nodes / s for s in created])}")
    print(f"  the server's CPU, us a Node    {_spread(used)}   (its own, and the pools' share)")


def _reading(options: argparse.Namespace) -> None:
    print(f"the server's CPU for a reader of a log of {options.subjects} messages, in us")
    for cost in reading_costs(options.subjects):
        print(f"  {cost.way:<30} {cost.message_us:,.0f} a message, {cost.begin_us:,.0f} to begin")


def _neighbours(options: argparse.Namespace) -> None:
    flood, affinity, longest = [], [], []
    for _ in range(options.runs):
        measured = neighbours(options.flood)
        idle_ms = measured.idle.median_ms
        flood.append(measured.flooded.median_ms / idle_ms)
        affinity.append(measured.affinity.median_ms / idle_ms)
        longest.append(max(measured.flooded.longest_ms, measured.affinity.longest_ms) / idle_ms)
    print(f"a command beside another organisation, / idle   (target: at most {RATIO_MAX})")
    print(f"  that floods with {options.flood:<7}       {_spread(flood, 1)}")
    print(f"  with the largest affinities    {_spread(affinity, 1)}")
    print(f"  the longest of all             {_spread(longest, 1)}   (a single command)")


def _restart(options: argparse.Namespace) -> None:
    measured = restart(options.messages)
    ratio = measured.full_s / measured.empty_s
    each_us = (measured.full_s - measured.empty_s) / measured.messages * 1e6
    print(f"restart with {measured.messages:,} messages / with none   {ratio:.2f}")
    print(f"  beyond an empty one, us a message {each_us:,.1f}   (snapshots included, one run)")


def _preemption(options: argparse.Namespace) -> None:
    measured = preemptions(options.preempted)
    print(f"{measured.nodes} Nodes preempted within {measured.begun_within:.2f} s")
    for name, delays in (("drains", measured.drain), ("ends", measured.end)):
        shown = f"{delays.median:.2f} ({delays.first:.2f} to {delays.last:.2f})"
        print(f"  {name} late by, s   {shown}   (budget: none early, at most 1.00)")
    print(f"  Pods ended at seven minutes    {measured.lost}")


def _kubernetes(options: argparse.Namespace) -> None:
    reason = missing()
    if reason:
        print(f"kubernetes                       not measured: {reason}")
        return
    for nodes in options.kube_nodes:
        print(f"a NodePool of {nodes} Nodes in Kubernetes, by one operator after another")
        found = list(compare_peers(nodes))
        for each in found:
            _print_resize("from nothing", each.name, each.up, nodes)
        for each in found:
            _print_resize("and back", each.name, each.down, nodes)
    print("  CPU: of the operator, of the services and NATS behind it, and of the API server")
    if not karpenter.PROGRAM.exists():
        print("  Karpenter is measured too once tests/bench/karpenter.sh has built it")


def _print_resize(way: str, name: str, took: Resize, nodes: int) -> None:
    used = f"{took.cpu_s:4.1f} + {took.others_s:4.1f} + {took.server_s:4.1f}"
    print(f"  {way:<12}  {name:<11}  s {took.seconds:5.1f}, CPU s {used}", end="")
    print(f", requests a Node {took.requests / nodes:4.1f}")


def _large_kubernetes(options: argparse.Namespace) -> None:
    reason = missing()
    if reason:
        print(f"large-kubernetes                 not measured: {reason}")
        return
    nodes, pods = options.large_nodes, options.large_pods
    found = kubernetes.large(nodes, pods, options.changes)
    p50, p99 = (_percentile(sorted(found.reactions), part) for part in (0.5, 0.99))
    print(f"{nodes} Nodes and {pods} Pods in Kubernetes")
    print(f"  spec to verdicts, ms           p50 {p50:.0f}, p99 {p99:.0f}   (budget: p99 1,000)")
    grown = found.after_mb - found.before_mb
    print(f"  the agent's memory, MB         {found.before_mb:.0f} to {found.after_mb:.0f}", end="")
    print(f"   ({grown / (nodes + pods) * 1_000:.1f} kB for each Node and Pod)")
    for (verb, resource), count in sorted(found.requests.items(), key=lambda item: -item[1])[:8]:
        print(f"  requests a Node, {verb + ' ' + resource:<24} {count:.2f}")
    print(f"  a new agent compares all in, s {found.restart_s:.1f}", end="")
    print(f"   ({found.restart_cpu_s:.1f} s of CPU, {found.restart_requests} requests)")
    print(f"  lists without pages            {len(found.unpaged)}")


ROWS: dict[str, Callable[[argparse.Namespace], None]] = {
    "pipeline": _pipeline,
    "nodes": _nodes,
    "reading": _reading,
    "neighbours": _neighbours,
    "restart": _restart,
    "preemption": _preemption,
    "kubernetes": _kubernetes,
    "large-kubernetes": _large_kubernetes,
}
LONG = ("preemption", "kubernetes", "large-kubernetes")
"""What is measured only where it is asked for, because it takes minutes whatever the machine."""


def main() -> None:
    """Prints one line for each measure."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=ROWS, default=[name for name in ROWS if name not in LONG]
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--commands", type=int, default=5_000)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--pools", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--subjects", type=int, default=40_000, help="messages of a log to read")
    parser.add_argument("--flood", type=int, default=20_000, help="unacknowledged commands")
    parser.add_argument("--messages", type=int, default=50_000, help="in the log at the restart")
    parser.add_argument("--preempted", type=int, default=750, help="Nodes preempted at once")
    parser.add_argument("--kube-nodes", nargs="+", type=int, default=[100, 500])
    parser.add_argument("--large-nodes", type=int, default=1_000)
    parser.add_argument("--large-pods", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=200, help="of a spec in a large cluster")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, {options.runs} runs, medians (lowest to highest)")
    for name in options.only:
        ROWS[name](options)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
