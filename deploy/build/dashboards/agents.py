"""The agents of clusters of Kubernetes: does one lead in each, and does it keep up?"""

from typing import Final

from agent.host.telemetry import NAME
from dashboards.graphs import lines, timeline
from dashboards.page import Section
from dashboards.panels import ANY_IS_BAD, Query
from dashboards.queries import RANGE, RATE, count, quantile, rate, series
from dashboards.values import stat
from nodepool.contract import agent_metrics, metrics
from nodepool.contract.agent_metrics import FAILED, PLACE_LABELS, REFUSED
from nodepool.contract.metrics import SERVICE_LABEL, Metric

_PLACE: Final = ", ".join(PLACE_LABELS)
_CLUSTER: Final = "/".join(f"{{{{{label}}}}}" for label in PLACE_LABELS)
"""The legend of a cluster."""
_REPLICA: Final = f"{_PLACE}, instance"
_NO_AGENT: Final = "no agent"


def _of_agents(metric: Metric, by: str) -> str:
    """One series for each combination of labels, of what each replica of a service has."""
    return f"max by ({by}) ({series(metric, where=_IS_AGENT)})"


_IS_AGENT: Final = f'{SERVICE_LABEL}="{NAME}"'
_LEADS: Final = _of_agents(metrics.LEADING, _PLACE)
_SEEN: Final = (
    f"group by ({_PLACE}) (last_over_time({series(metrics.LEADING, where=_IS_AGENT)}[{RANGE}]))"
)
_WITHOUT_LEADER: Final = (
    f"count({_SEEN} unless on ({_PLACE}) ({_LEADS} == 1)) or count({_SEEN}) * 0"
)
"""Where an agent was seen there is to be one."""
_STATES: Final = {
    "0": ("not ready", "red"),
    "1": ("ready, stands by", "blue"),
    "2": ("leads, not ready", "orange"),
    "3": ("ready, leads", "green"),
}
_READY_AND_LEADS: Final = (
    f"{_of_agents(metrics.READY, _REPLICA)} "
    f"+ on ({_REPLICA}) 2 * {_of_agents(metrics.LEADING, _REPLICA)}"
)
"""A number for each of what may be true of a replica at once."""
_NOT_DONE: Final = f'result=~"{FAILED}|{REFUSED}"'


def _gauge(metric: Metric, by: str = _PLACE) -> str:
    return f"max by ({by}) ({series(metric)})"


AGENTS: Final = Section(
    "Do the agents of Kubernetes clusters keep up?",
    [
        timeline(
            "Agents",
            "What each replica of an agent does. A cluster needs one that is ready and leads; else "
            "nothing is compared there.",
            _READY_AND_LEADS,
            f"{_CLUSTER} {{{{instance}}}}",
            _STATES,
            width=18,
            height=8,
            empty=_NO_AGENT,
        ),
        stat(
            "Clusters without a leading agent",
            "Clusters of which an agent was seen in the time shown, and none leads now.",
            _WITHOUT_LEADER,
            steps=ANY_IS_BAD,
            empty=_NO_AGENT,
            width=6,
            height=8,
        ),
        lines(
            "Objects that wait",
            "NodePools and Nodes that are to be compared; more and more is too much load, or an "
            "agent that is stuck.",
            [Query(_gauge(agent_metrics.QUEUE), _CLUSTER)],
            width=6,
            decimals=0,
            empty=_NO_AGENT,
        ),
        lines(
            "Pods that wait",
            "Pods for which the scheduler has found no Node; NodePools that are autoscaled grow "
            "for those that would fit on one of theirs.",
            [Query(_gauge(agent_metrics.PODS_WAITING), _CLUSTER)],
            width=6,
            decimals=0,
            empty=_NO_AGENT,
        ),
        lines(
            "Comparisons, 99 of 100",
            "How long it took to compare an object and to carry out what was missing, by kind.",
            [
                Query(
                    quantile(0.99, agent_metrics.RECONCILE_SECONDS, by=f"{_PLACE}, kind"),
                    f"{_CLUSTER} {{{{kind}}}}",
                )
            ],
            unit="s",
            log=True,
            width=6,
            empty="nothing compared",
        ),
        lines(
            "Actions that failed",
            "In each step; what is refused is refused again until somebody changes something, and "
            "an Event of its NodePool says why.",
            [
                Query(
                    count(
                        agent_metrics.ACTIONS,
                        by=f"{_PLACE}, action, result",
                        where=_NOT_DONE,
                        window=RATE,
                    )
                    + " > 0",
                    f"{_CLUSTER} {{{{action}}}} {{{{result}}}}",
                )
            ],
            width=6,
            empty="none",
        ),
        lines(
            "Requests to the API server",
            "A second, by the code of the reply; 0 is none, 409 a change that came too late.",
            [Query(rate(agent_metrics.REQUESTS, by=f"{_PLACE}, code"), f"{_CLUSTER} {{{{code}}}}")],
            unit="reqps",
            width=6,
            empty=_NO_AGENT,
        ),
        lines(
            "Requests to the API server, 99 of 100",
            "How long they took, by verb, without watches.",
            [
                Query(
                    quantile(0.99, agent_metrics.REQUEST_SECONDS, by=f"{_PLACE}, verb"),
                    f"{_CLUSTER} {{{{verb}}}}",
                )
            ],
            unit="s",
            log=True,
            width=6,
            empty=_NO_AGENT,
        ),
        lines(
            "Objects known",
            "Objects of the cluster that the agent knows, by kind; Pods are those on Nodes.",
            [Query(_gauge(agent_metrics.OBJECTS, f"{_PLACE}, kind"), f"{_CLUSTER} {{{{kind}}}}")],
            width=6,
            decimals=0,
            empty=_NO_AGENT,
        ),
        lines(
            "Age of the last list",
            "Since all objects of a kind were read at once, by kind. It grows while watches last, "
            "which is well, and falls where a connection was lost.",
            [Query(_gauge(agent_metrics.LAST_SYNC, f"{_PLACE}, kind"), f"{_CLUSTER} {{{{kind}}}}")],
            unit="s",
            width=6,
            empty=_NO_AGENT,
        ),
    ],
)
