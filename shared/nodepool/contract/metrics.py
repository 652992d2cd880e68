"""The metrics that the services export: names, types, labels and help texts, each in one place.

Names and units follow https://prometheus.io/docs/practices/naming/. A label has a bounded number of
values: names of the contract, results that the code knows, or identities of objects that exist now.
"""

from typing import Final, Literal, NamedTuple

Kind = Literal["gauge", "counter", "histogram"]


class Metric(NamedTuple):
    """A family of series.

    name: with its unit, and with `_total` where it is a counter.
    kind: gauge, counter or histogram.
    help: one sentence.
    labels: their names, in order; `nodepool_service` stands before them in every family.
    buckets: the upper bounds of a histogram, in its unit, without the last one, which is infinite.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class Histogram(NamedTuple):
    """What a histogram has counted.

    counts: how many values lay in each bucket of its metric and in no lower one, the last of them
        above all bounds; so there is one more than the metric has bounds.
    sum: of all values, in the unit of the metric.
    """

    counts: tuple[int, ...]
    sum: float


class Sample(NamedTuple):
    """A series at one moment.

    labels: the values of the labels of its metric, in the same order.
    value: a Histogram where the metric is one.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram


SERVICE_LABEL: Final = "nodepool_service"
"""The label with the service's name; `service` is one that Prometheus gives to its targets."""
CLUSTER_LABEL: Final = "nodepool_cluster"
"""The label with a NodePool's cluster; `cluster` is one that Prometheus gives to its targets."""
_POOL = ("org", CLUSTER_LABEL, "pool")
_OFFERING = ("zone", "instance_type")
_USE = ("org", "instance_type", "use")
QUICK = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60)
"""From a millisecond to a minute."""
_LATE = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
_SLOW = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 14_400, 86_400)
"""From a second to a day."""
_OLD = (60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)
"""From a minute to 30 days."""


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(f"nodepool_{name}", "gauge", help, labels)


def _counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(f"nodepool_{name}_total", "counter", help, labels)


def _histogram(name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"nodepool_{name}_seconds", "histogram", help, labels, buckets)


# NodePools.

INFO = _gauge(
    "info",
    "1 for each NodePool, with what does not change of it.",
    *_POOL,
    *_OFFERING,
    "compute_class",
)
TARGET_NODES = _gauge("target_nodes", "Nodes that a NodePool should have.", *_POOL)
GRANTED_NODES = _gauge("granted_nodes", "Nodes that its quota allows a NodePool.", *_POOL)
CURRENT_NODES = _gauge(
    "current_nodes",
    "Nodes of a NodePool registered and not deleted, without Nodes reserved for the control plane.",
    *_POOL,
)
IN_PROGRESS_NODES = _gauge(
    "in_progress_nodes", "Nodes of a NodePool assigned and not yet registered.", *_POOL
)
QUEUED_NODES = _gauge("queued_nodes", "Nodes granted to a NodePool without a machine yet.", *_POOL)
QUEUE_POSITION = _gauge(
    "queue_position",
    "Position of the first Node that a NodePool waits for, among all that wait for machines of its"
    " type in its zone; absent for a NodePool that waits for no machine.",
    *_POOL,
)
ACTIVE_NODES = _gauge(
    "active_nodes", "Registered Nodes of a NodePool on which a workload runs.", *_POOL
)
IDLE_NODES = _gauge(
    "idle_nodes", "Registered Nodes of a NodePool on which no workload runs.", *_POOL
)
UNHEALTHY_NODES = _gauge(
    "unhealthy_nodes",
    "Nodes of a NodePool cordoned for a problem, by a command or for their rack.",
    *_POOL,
    "cause",
)
PREEMPTING_NODES = _gauge(
    "preempting_nodes", "Nodes of a NodePool that are being preempted.", *_POOL, "stage"
)
STATUS_CONDITION = _gauge(
    "status_condition",
    "1 for the status and reason that a condition has now.",
    *_POOL,
    "type",
    "status",
    "reason",
)
CONDITION_SINCE = _gauge(
    "status_condition_last_transition_timestamp_seconds",
    "When a condition got the status that it has now.",
    *_POOL,
    "type",
)
CONDITION_TRANSITIONS = _counter(
    "status_condition_transitions",
    "Changes of the status of conditions of all NodePools, by the new status.",
    "type",
    "status",
    "reason",
)
CONDITION_DURATION = _histogram(
    "status_condition_duration",
    "How long a condition had a status when that changed.",
    _SLOW,
    "type",
    "status",
)
TIME_TO_TARGET = _histogram(
    "time_to_target",
    "From a change of its target, or a loss of a Node, until a NodePool is at its target; not while"
    " it wants more than its quota, nor where its target changes to what it has.",
    _SLOW,
    *_OFFERING,
    "compute_class",
    "direction",
)

# Quotas and machines.

QUOTA_LIMIT_NODES = _gauge(
    "quota_limit_nodes",
    "Nodes an organisation may hold; absent where no limit is set.",
    "org",
    *_OFFERING,
)
QUOTA_USED_NODES = _gauge(
    "quota_used_nodes", "Nodes an organisation is granted.", "org", *_OFFERING
)
MACHINES = _gauge(
    "machines", "Machines by what they are doing, and why.", *_OFFERING, "state", "cause"
)
REAL_MACHINES = _gauge("real_machines", "Real machines by condition.", *_OFFERING, "condition")
POWER_REQUESTS = _counter("power_requests", "Power requests, by their outcome.", "zone", "outcome")

# Nodes.

NODE_JOIN = _histogram(
    "node_join", "From assigning a machine until its Node is registered.", _SLOW, *_OFFERING
)
NODE_FAILURES = _counter("node_failures", "Nodes that failed, by what failed.", *_OFFERING, "cause")
NODE_REMOVALS = _counter("node_removals", "Nodes deleted, by why.", *_OFFERING, "reason")
REMOVED_NODE_AGE = _histogram(
    "removed_node_age", "How long Nodes had been assigned when they were deleted.", _OLD, "reason"
)
LOST_NODE_SECONDS = _counter(
    "lost_node_seconds",
    "Seconds for which registered Nodes could not be used, by why, counted when that ends.",
    *_OFFERING,
    "cause",
)
NODES_BY_USE = _gauge("nodes_by_use", "Nodes by what they are used for.", *_USE)
NODE_USE_SECONDS = _gauge(
    "node_use_seconds",
    "Seconds of the month for which Nodes had a use, up to `nodepool_node_use_timestamp_seconds`.",
    *_USE,
)
NODE_USE_TIME = _gauge(
    "node_use_timestamp_seconds", "When the use of a Node last changed, by the clock of the log."
)
SILENT_NODES = _gauge(
    "silent_nodes",
    "Nodes with Ready=Unknown, and whether most of their zone or their cluster have that.",
    "zone",
    "org",
    CLUSTER_LABEL,
    "widespread",
)
REFUSED_NODE_MOVES = _counter(
    "refused_node_moves",
    "Messages that asked a Node for a move that cannot follow.",
    "phase",
    "message",
)

# Preemptions.

PREEMPTIONS = _counter("preemptions", "Preemptions begun, by why.", "cause")
PREEMPTION_STAGES = _counter(
    "preemption_stages", "Stages of preemptions that came at their moment or after it.", "stage"
)
PREEMPTION_LATE_STAGES = _counter(
    "preemption_late_stages", "Those that came more than a second after their moment.", "stage"
)
PREEMPTION_LATENESS = _histogram(
    "preemption_lateness", "How late the stages of preemptions were.", _LATE, "stage"
)
PREEMPTION_LOST_PODS = _counter(
    "preemption_lost_pods", "Pods that ran on when the time of a preemption was over."
)

# Commands and other messages.

COMMANDS = _counter("commands", "Commands by outcome.", "command", "result", "reason")
COMMAND_SECONDS = _histogram(
    "command", "From storing a command to storing its outcome.", QUICK, "command"
)
MESSAGES_PROCESSED = _counter(
    "messages_processed", "Inputs by type and outcome.", "message", "outcome"
)
MESSAGES_PUBLISHED = _counter("messages_published", "Outputs stored, by type.", "message")
MESSAGE_AGE = _histogram("message_age", "From storing an input to storing its outputs.", QUICK)
DEAD_LETTERS = _counter(
    "dead_letters",
    "Inputs and objects parked on the dead-letter subject, without commands that cannot be read.",
)

# A replica.

BUILD_INFO = _gauge("build_info", "1, with the version of the program.", "version")
CONNECTED = _gauge("connected", "1 while this replica is connected to the bus.")
READY = _gauge("ready", "1 while this replica does its work, as /readyz says.")
LEADING = _gauge("leading", "1 if the last commit is one of this replica.")
PENDING_MESSAGES = _gauge("pending_messages", "Messages not yet processed.")
OLDEST_INPUT_AGE = _gauge(
    "oldest_input_age_seconds", "For how long the oldest message not yet processed has waited."
)
COMMITTED_POSITION = _gauge("committed_position", "All inputs up to this position are committed.")
REPLAY_FAILURES = _gauge("replay_failures", "Inputs replayed with an output that cannot be folded.")
COMMITS = _counter("commits", "Commits by result.", "result")
COMMIT_SECONDS = _histogram("commit", "How long the bus took to store a commit.", QUICK)
RECONNECTS = _counter("reconnects", "Reconnects to the bus.")
SESSION_RESTARTS = _counter(
    "session_restarts", "Times that this replica began a new session in the same process."
)

# The log and the read model.

LOG_MESSAGES = _gauge("log_messages", "Messages in the log.")
LOG_BYTES = _gauge("log_bytes", "Size of the log.")
LOG_LAST_POSITION = _gauge("log_last_position", "The position of the newest message of the log.")
STORAGE_USED_BYTES = _gauge("storage_used_bytes", "What the account stores, all streams together.")
STORAGE_LIMIT_BYTES = _gauge(
    "storage_limit_bytes",
    "The most that the account, or else the servers, may store; absent where neither is known.",
)
LOG_COPIES = _gauge("log_copies", "Copies of the log that servers keep, by state.", "state")
READ_MODEL_LAG = _gauge(
    "read_model_lag_seconds", "For how long the oldest change not yet written has waited."
)
READ_MODEL_PENDING_OBJECTS = _gauge(
    "read_model_pending_objects", "Objects of the read model that are still to be written."
)
READ_MODEL_REPAIRS = _counter(
    "read_model_repairs", "Objects written again, since another program had changed them."
)
INVARIANT_VIOLATIONS = _counter(
    "invariant_violations", "Times that a rule which always holds did not.", "invariant"
)
INVARIANT_LAST_POSITION = _gauge(
    "invariant_violation_last_position",
    "The position in the log of the message that broke a rule last; absent where none did.",
    "invariant",
)

ALL: Final[tuple[Metric, ...]] = tuple(
    value for value in vars().values() if isinstance(value, Metric)
)
"""Every metric, in the order of this module."""
