"""The section about real machines: their problems, and the outcomes of power requests."""

from typing import Final

from dashboards.graphs import lines
from dashboards.page import Section
from dashboards.panels import ANY_IS_A_WARNING, Query
from dashboards.queries import OFFERING, RATE, count, of_offerings, quantile
from dashboards.values import stat
from nodepool.contract import metal_metrics as of_metal
from nodepool.contract import metrics

_NO_REAL_MACHINES: Final = "no real machines"


def _with(condition: str) -> str:
    """Return the query for how many real machines have a condition."""
    shown = of_offerings(metrics.REAL_MACHINES, OFFERING, f'condition="{condition}"')
    return f"sum({shown})"


REAL_MACHINES: Final = Section(
    "What is wrong with real machines?",
    [
        stat(
            "Controllers silent",
            "Machines whose management controller does not answer. Nodes on them run on; nothing "
            "is powered on or off there. `nodepool get machines` names them.",
            _with("ControllerSilent"),
            steps=ANY_IS_A_WARNING,
            height=8,
            empty=_NO_REAL_MACHINES,
        ),
        stat(
            "In maintenance",
            "Machines on which people work, so that nothing else touches them.",
            _with("Maintenance"),
            height=8,
            empty=_NO_REAL_MACHINES,
        ),
        lines(
            "Real machines by condition",
            "Unfit: something has failed, or differs from the inventory. OtherMachine, OtherType: "
            "the inventory says something else. PowerStuck: requests have no effect. WipeWaits: "
            "a machine waits for its turn to be wiped.",
            [
                Query(
                    "sum by (condition) "
                    f"({of_offerings(metrics.REAL_MACHINES, f'{OFFERING}, condition')})",
                    "{{condition}}",
                )
            ],
            stairs=True,
            decimals=0,
            width=10,
            empty=_NO_REAL_MACHINES,
        ),
        lines(
            "Power requests by outcome",
            "Refused: the controller did not carry it out. Unknown: the connection broke. Overdue: "
            "no effect was observed in time, so that another request follows.",
            [Query(count(metrics.POWER_REQUESTS, "zone", by="outcome"), "{{outcome}}")],
            stacked=True,
            width=6,
            empty=_NO_REAL_MACHINES,
        ),
        lines(
            "Readings of controllers",
            "How long the readings of controllers took: 95 of 100 were faster.",
            [Query(quantile(0.95, of_metal.READING_SECONDS, by="result"), "{{result}}")],
            unit="s",
            width=10,
            empty=_NO_REAL_MACHINES,
        ),
        lines(
            "Inventories that were read",
            "A refused inventory has a line for each fault in the log of `metal`; the previous "
            "inventory stays in force until a restart.",
            [Query(count(of_metal.INVENTORIES, by="result", window=RATE), "{{result}}")],
            stairs=True,
            decimals=0,
            width=10,
            empty=_NO_REAL_MACHINES,
        ),
        stat(
            "Inventories refused",
            "Replicas whose inventory file has a fault now; the last inventory without a fault "
            "stays in force until a restart.",
            f"sum({of_metal.INVENTORY_REFUSED.name})",
            steps=ANY_IS_A_WARNING,
            height=8,
            empty=_NO_REAL_MACHINES,
        ),
    ],
)
