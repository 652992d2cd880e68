"""The measures of a run, each as lines of one table.

Times on a shared machine vary, so a line is a ratio of two measurements of the same run, or what
one unit costs. If there are several runs, it is their median, with the lowest and the highest.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bench import console, gateway, karpenter, kubernetes, machines, profiled
from bench.age import measure_ages
from bench.archiving import archiving
from bench.growth import measure_growth, write_growth
from bench.machine import describe_machine
from bench.neighbours import neighbours
from bench.peers import Resize, compare_peers
from bench.pipeline import apply_one_by_one, bare, bare_with_decoding, control_plane
from bench.preemption import preemptions
from bench.questions import answer_questions
from bench.reading import reading_costs
from bench.restart import restart
from bench.start import measure_rest
from bench.table import NOT_MEASURED, Line
from nodepool.engine.waiting import WAITING_MAX
from testbed.cluster import missing

RATIO_MAX = 20
"""How many times longer a command may take whatever another organisation does."""


class Row(NamedTuple):
    """A group of lines.

    what: what they are about.
    is_long: whether they take minutes on any machine, so that they are measured only on request.
    """

    what: str
    measure: Callable[[argparse.Namespace], Iterator[Line]]
    is_long: bool = False


def _spread(values: Sequence[float], digits: int = 0) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    around = f" ({low:,.{digits}f} to {high:,.{digits}f})" if len(values) > 1 else ""
    return f"{middle:,.{digits}f}{around}"


def _percentile(took: Sequence[float], part: float) -> float:
    return took[min(len(took) - 1, int(part * len(took)))] * 1e3


def _start(_options: argparse.Namespace) -> Iterator[Line]:
    rest = measure_rest()
    yield Line("`nodepool up` at rest without the server, MB", str(rest.up), "at most 160")
    yield Line("of these the two processes of the services, MB", str(rest.services))
    yield Line("the nats-server beside it, MB", str(rest.server))
    yield Line("CPU of `nodepool --help`, ms", f"{rest.help_ms:.0f}")
    yield Line("CPU of `nodepool get nodepools`, ms", f"{rest.get_ms:.0f}")


def _pipeline(options: argparse.Namespace) -> Iterator[Line]:
    seconds, bare_s, decoding_s, p50, p99 = [], [], [], [], []
    for _ in range(options.runs):
        run, samples = control_plane(options.commands, 0, options.window)
        seconds.append(run.seconds)
        p50.append(_percentile(run.took, 0.5))
        p99.append(_percentile(run.took, 0.99))
        bare_s.append(bare(options.commands, options.window, samples))
        decoding_s.append(bare_with_decoding(options.commands, options.window, samples))
    for what, values in (
        ("pipeline", seconds),
        ("bare pipeline", bare_s),
        ("bare pipeline with the same decoding", decoding_s),
    ):
        yield Line(f"{what}, commands/s", _spread([options.commands / each for each in values]))
    ratios = [low / high for low, high in zip(bare_s, seconds, strict=True)]
    yield Line("pipeline / bare pipeline", _spread(ratios, 2), "at least 0.60")
    ratios = [low / high for low, high in zip(decoding_s, seconds, strict=True)]
    yield Line("pipeline / (bare + the same decoding)", _spread(ratios, 2))
    waiting = f"status after, {options.window} commands in flight, ms"
    yield Line(waiting, f"p50 {_spread(p50)}, p99 {_spread(p99)}")


def _verdicts(options: argparse.Namespace) -> Iterator[Line]:
    runs = [apply_one_by_one(options.applies) for _ in range(options.runs)]
    p50, p99 = ([_percentile(took, part) for took in runs] for part in (0.5, 0.99))
    yield Line(
        "apply until all verdicts are visible, quiet system, ms",
        f"p50 {_spread(p50, 1)}, p99 {_spread(p99, 1)}",
        "p50 10, p99 20",
    )


def _nodes(options: argparse.Namespace) -> Iterator[Line]:
    nodes, window = options.pools * options.nodes, min(options.pools, WAITING_MAX)
    runs = [control_plane(options.pools, options.nodes, window)[0] for _ in range(options.runs)]
    what = f"{options.pools:,} pools of {options.nodes} Nodes"
    yield Line(f"{what}, s", _spread([run.seconds for run in runs], 1))
    rates = [nodes / run.seconds for run in runs]
    yield Line(f"{what}, Nodes/s", _spread(rates), "at least 1,500")
    used = [run.services_cpu_s / nodes * 1e6 for run in runs]
    yield Line(f"{what}, CPU of the services, µs per Node", _spread(used), "at most 1,000")
    used = [run.server_cpu_s / nodes * 1e6 for run in runs]
    yield Line(f"{what}, CPU of the server, µs per Node", _spread(used))


def _reading(options: argparse.Namespace) -> Iterator[Line]:
    for cost in reading_costs(options.subjects):
        yield Line(
            f"reader of {options.subjects:,} messages {cost.way}, CPU of the server, µs",
            f"{cost.message_us:,.0f} per message, {cost.begin_us:,.0f} to begin",
        )


def _neighbours(options: argparse.Namespace) -> Iterator[Line]:
    flood, affinity, longest, behind, behind_ms = [], [], [], [], []
    for _ in range(options.runs):
        measured = neighbours(options.flood)
        idle_ms = measured.idle.median_ms
        flood.append(measured.flooded.median_ms / idle_ms)
        affinity.append(measured.affinity.median_ms / idle_ms)
        longest.append(max(measured.flooded.longest_ms, measured.affinity.longest_ms) / idle_ms)
        behind.append(measured.behind_ms / idle_ms)
        behind_ms.append(measured.behind_ms)
    budget = f"at most {RATIO_MAX}"
    yield Line(f"command after {options.flood:,} of others / idle", _spread(flood, 1), budget)
    yield Line("command beside the largest affinities / idle", _spread(affinity, 1), budget)
    yield Line("the longest single command of both / idle", _spread(longest, 1))
    what = f"command sent while {options.flood:,} of others wait / idle"
    yield Line(what, f"{_spread(behind, 1)}; ms {_spread(behind_ms)}", budget)


def _gateway(options: argparse.Namespace) -> Iterator[Line]:
    runs = range(options.runs)
    pipelines = [gateway.pipelines(options.commands, options.window) for _ in runs]
    yield Line(
        "pipeline of a user through the gateway, commands/s",
        _spread([options.commands / each.gateway_s for each in pipelines]),
    )
    ratios = [each.direct_s / each.gateway_s for each in pipelines]
    what = "the same / pipeline of the platform's own sender"
    yield Line(what, _spread(ratios, 2), "at least 0.80")
    carried = [gateway.carry(options.flood, options.window) for _ in runs]
    rates = [options.flood / each.gateway_s for each in carried]
    yield Line("commands acknowledged by a gateway, commands/s", _spread(rates), "at least 3,000")
    ratios = [each.direct_s / each.gateway_s for each in carried]
    yield Line("the same / commands that the log acknowledges", _spread(ratios, 2))
    used = [each.cpu_s / options.flood * 1e6 for each in carried]
    yield Line("the same, CPU of the gateway, µs per command", _spread(used))


def _door(options: argparse.Namespace) -> Iterator[Line]:
    runs = [gateway.neighbours(options.flood) for _ in range(options.runs)]
    idle_ms = [run["idle"].median_ms for run in runs]
    yield Line("command through the gateway, idle, ms", _spread(idle_ms, 1))
    for name in [name for name in runs[0] if name != "idle"]:
        ratios = [run[name].median_ms / run["idle"].median_ms for run in runs]
        longest_ms = [run[name].longest_ms for run in runs]
        yield Line(
            f"command while another organisation {name} / idle",
            f"{_spread(ratios, 1)}; longest, ms {_spread(longest_ms)}",
            f"at most {RATIO_MAX}",
        )


def _restart(options: argparse.Namespace) -> Iterator[Line]:
    measured = restart(options.messages)
    ratio = measured.full_s / measured.empty_s
    each_us = (measured.full_s - measured.empty_s) / measured.messages * 1e6
    yield Line(f"restart with {measured.messages:,} messages / with none, one run", f"{ratio:.2f}")
    yield Line("the same beyond an empty log, µs per message", f"{each_us:,.1f}")


def _preemption(options: argparse.Namespace) -> Iterator[Line]:
    measured = preemptions(options.preempted)
    what, within_s = f"{measured.nodes} Nodes preempted", measured.begun_within
    yield Line(f"{what}, all begun within, s", f"{within_s:.2f}")
    for name, delays in (("drains", measured.drain), ("ends", measured.end)):
        shown = f"{delays.median:.2f} ({delays.first:.2f} to {delays.last:.2f})"
        yield Line(f"{what}, {name} late by, s", shown, "none early, at most 1.00")
    yield Line(f"{what}, Pods ended at seven minutes", str(measured.lost))


def _kubernetes(options: argparse.Namespace) -> Iterator[Line]:
    reason = missing()
    if reason:
        yield Line("Nodes in Kubernetes", NOT_MEASURED + reason)
        return
    for nodes in options.kube_nodes:
        found = list(compare_peers(nodes))
        for each in found:
            yield _line_of_resize(f"{nodes} Nodes from nothing", each.name, each.up, nodes)
        for each in found:
            yield _line_of_resize(f"{nodes} Nodes and back", each.name, each.down, nodes)
    if not karpenter.PROGRAM.exists():
        yield Line("Karpenter", NOT_MEASURED + "build it with tests/bench/karpenter.sh")


def _line_of_resize(way: str, name: str, took: Resize, nodes: int) -> Line:
    used = f"{took.cpu_s:.1f} + {took.others_s:.1f} + {took.server_s:.1f}"
    requests = took.requests / nodes
    budget = "at most 3.0 requests" if name == "agent" else ""
    what = f"Kubernetes, {way}: {name}"
    shown = f"{took.seconds:.1f} s, CPU s {used}, {requests:.1f} requests per Node"
    return Line(what, shown, budget)


def _large_kubernetes(options: argparse.Namespace) -> Iterator[Line]:
    nodes, pods = options.large_nodes, options.large_pods
    what = f"Kubernetes with {nodes:,} Nodes and {pods:,} Pods"
    reason = missing()
    if reason:
        yield Line(what, NOT_MEASURED + reason)
        return
    found = kubernetes.large(nodes, pods, options.changes)
    p50, p99 = (_percentile(sorted(found.reactions), part) for part in (0.5, 0.99))
    yield Line(f"{what}, spec to verdicts, ms", f"p50 {p50:.0f}, p99 {p99:.0f}", "p99 1,000")
    each_kb = (found.after_mb - found.before_mb) / (nodes + pods) * 1_000
    grown = f"{found.before_mb:.0f} to {found.after_mb:.0f}, {each_kb:.1f} kB per Node and Pod"
    yield Line("the agent's memory without and with them, MB", grown)
    for (verb, resource), count in sorted(found.requests.items(), key=lambda item: -item[1])[:8]:
        yield Line(f"requests per Node, {verb} {resource}", f"{count:.2f}")
    again = f"{found.restart_cpu_s:.1f} s of CPU, {found.restart_requests} requests"
    yield Line("a new agent compares everything in, s", f"{found.restart_s:.1f}, {again}")
    yield Line("lists without pages", str(len(found.unpaged)))


def _growth(options: argparse.Namespace) -> Iterator[Line]:
    found = []
    for each in measure_growth(options.sizes):
        found.append(each)
        used = f"CPU µs per Node {each.services_us:,.0f} services + {each.server_us:,.0f} server"
        shown = f"{each.seconds:.1f} s, {each.rate:,.0f} Nodes/s, {used}"
        yield Line(f"growth to {each.nodes:,} Nodes", f"{shown}, restart {each.restart_s:.1f} s")
    if options.write:
        write_growth(describe_machine(), found)


def _archiving(options: argparse.Namespace) -> Iterator[Line]:
    runs = [archiving(options.commands, options.window) for _ in range(options.runs)]
    ratios = [run.alone_s / run.beside_s for run in runs]
    yield Line("pipeline beside an archiver / alone", _spread(ratios, 2), "at least 0.95")
    shares = [100 * run.cpu_share for run in runs]
    yield Line("the archiver's part of the CPU, %", _spread(shares, 1))
    yield Line("archived after, s", _spread([run.quiet_s for run in runs], 1), "at most 10")
    yield Line("a message in the archive, bytes", _spread([run.bytes for run in runs]))


def _age(options: argparse.Namespace) -> Iterator[Line]:
    found = []
    for each in measure_ages(options.large_nodes, options.ages):
        found.append(each)
        services = ", ".join(f"{name} {s:.2f}" for name, s in each.services_s.items())
        yield Line(
            f"restart after {each.messages:,} messages, s",
            f"{each.all_s:.2f}; CPU {each.cpu_s:.2f}; {services}",
        )
    first, last = found[0], found[-1]
    ratios = f"{last.all_s / first.all_s:.2f}; CPU {last.cpu_s / first.cpu_s:.2f}"
    yield Line("the last / the first", ratios, "at most 1.2")


def _questions(_options: argparse.Namespace) -> Iterator[Line]:
    for number, each in enumerate(answer_questions()):
        yield Line(each.what, f"{each.seconds:.2f}", "" if number else "at most 2")


ROWS = {
    "start": Row("`nodepool up` at rest", _start),
    "pipeline": Row("throughput beside a bare pipeline", _pipeline),
    "verdicts": Row("apply until all verdicts are visible", _verdicts),
    "nodes": Row("NodePools from nothing to all their Nodes", _nodes),
    "profile": Row("where the time of the services goes", profiled.list_lines),
    "reading": Row("readers of the log", _reading),
    "neighbours": Row("a command beside another organisation", _neighbours),
    "gateway": Row("commands through the gateway", _gateway),
    "door": Row("a command beside another organisation at the door", _door),
    "restart": Row("restart with a long log", _restart),
    "archiving": Row("an archiver beside the pipeline", _archiving),
    "questions": Row("SQL over a long log", _questions, is_long=True),
    "age": Row("restart by the age of the log", _age, is_long=True),
    "console": Row("open tabs of the console", console.list_lines, is_long=True),
    "preemption": Row("punctual preemptions", _preemption, is_long=True),
    "kubernetes": Row("Nodes in Kubernetes beside other operators", _kubernetes, is_long=True),
    "large-kubernetes": Row("a large Kubernetes", _large_kubernetes, is_long=True),
    "growth": Row("growth", _growth, is_long=True),
    "machines": Row("real machines", machines.list_lines, is_long=True),
}
