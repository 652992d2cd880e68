"""Pages of metrics compared with the list of what is exported, and judged by promtool."""

import shutil
import subprocess
from collections.abc import Collection, Iterable

from prometheus_client.parser import text_string_to_metric_families

from nodepool.contract.metrics import Metric

PROCESS_METRICS = {
    f"process_{name}"
    for name in (
        "virtual_memory_bytes",
        "resident_memory_bytes",
        "start_time_seconds",
        "cpu_seconds",
        "open_fds",
        "max_fds",
    )
}
PROMTOOL = shutil.which("promtool")


def strangers(
    page: str, listed: Iterable[Metric], constant: Collection[str] = ("nodepool_service",)
) -> list[str]:
    """What on a page is not as a list of metrics has it: names, types, help texts, labels.

    constant: the labels that every series of the page has beside its own.
    """
    # By the name that a parser has for them.
    by_name = {metric.name.removesuffix("_total"): metric for metric in listed}
    found = []
    for family in text_string_to_metric_families(page):
        metric = by_name.get(family.name)
        if family.name in PROCESS_METRICS:
            continue
        if metric is None or (family.type, family.documentation) != (metric.kind, metric.help):
            found.append(family.name)
            continue
        wanted = {*constant, *metric.labels}
        found += [str(it) for it in family.samples if it.labels.keys() - {"le"} != wanted]
    return found


def lint(page: str) -> str:
    """What promtool has to say of a page; nothing for a good one, or where there is no promtool."""
    if PROMTOOL is None:
        return ""
    command = [PROMTOOL, "check", "metrics"]
    done = subprocess.run(command, input=page, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}"
