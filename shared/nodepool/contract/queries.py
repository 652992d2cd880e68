"""The queries that the gateway answers: requests with JSON on `np.api.<org>.<Query>`.

An answer is a JSON object with `position`: the read model shows what the log has accepted up to
there. The reply to a refused query has `reason`, `error`, `field` and `fix`, as for a refused
command. Every answer has at most `ANSWER_BYTES_MAX` bytes.

A query with `at`, a position of the log or a time, is answered as of that moment of the past, if
the gateway has an archive.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field, ValidationError

from nodepool.contract.availability import CapacitySelections
from nodepool.contract.decode import explain
from nodepool.contract.grammar import SUBDOMAIN_LIMIT
from nodepool.contract.model import Value
from nodepool.contract.selectors import SELECTOR_MAX
from nodepool.contract.suggest import did_you_mean

Kind = Literal["nodepools", "nodes", "quotas", "clusters"]
"""The kinds of objects that an organisation has."""
ANSWER_BYTES_MAX: Final = 900 * 1024
"""The most bytes of an answer."""
QUERY_BYTES_MAX: Final = 16 * 1024
"""The most bytes of a query."""
LIMIT_MAX: Final = 1_000
"""The most objects or events of one answer."""
WAIT_MAX_S: Final = 30.0
"""The longest that a query waits, in seconds."""
POSITION_MAX: Final = 2**53
NAMES_MAX: Final = 64
"""The most names of events in a query."""
RELEASE_MAX: Final = 64

Name = Annotated[str, Field(max_length=SUBDOMAIN_LIMIT)]
Selector = Annotated[str, Field(max_length=SELECTOR_MAX)]
Cursor = Annotated[str, Field(max_length=1_000)]
Limit = Annotated[int, Field(ge=1, le=LIMIT_MAX)]
Wait = Annotated[float, Field(ge=0, le=WAIT_MAX_S)]
Position = Annotated[int, Field(ge=0, le=POSITION_MAX)]
At = Annotated[int, Field(ge=1, le=POSITION_MAX)] | AwareDatetime
"""A moment of the past: a position of the log, or a time."""


class Query(Value):
    """A question about the objects or events of one organisation."""


class Get(Query):
    """Returns one object as `object`, with its `revision`.

    kind: the kind of the object.
    cluster: the cluster of a NodePool or Node.
    name: the name of the object; of a quota, `<zone>.<instance type>`.
    not_older_than: the position of the log that the answer must show; the query waits for it.
    current: whether the answer must show all that the log has when the query arrives.
    at: the moment of the past that the answer shows; none for the present.
    """

    kind: Kind
    cluster: Name = ""
    name: Annotated[str, Field(min_length=1, max_length=SUBDOMAIN_LIMIT)]
    not_older_than: Position = 0
    current: bool = False
    at: At | None = None


class List(Query):
    """Returns objects as `items`, in the order of their names, a page at a time.

    A page may have fewer objects than `limit`, and none, although more follow: only an answer
    without `continue` is the last page. `revision` is where a `Watch` continues.

    kind: the kind of the objects.
    cluster: the cluster of the objects; empty for all clusters.
    label_selector, field_selector: which objects to return, as `nodepool get` takes them.
    limit: the most objects of the page.
    continue_: the `continue` of the previous page.
    not_older_than: the position of the log that the answer must show; the query waits for it.
    current: whether the answer must show all that the log has when the query arrives.
    at: the moment of the past that the answer shows; none for the present.
    """

    kind: Kind
    cluster: Name = ""
    label_selector: Selector = ""
    field_selector: Selector = ""
    limit: Limit = 100
    continue_: Annotated[Cursor, Field(alias="continue")] = ""
    not_older_than: Position = 0
    current: bool = False
    at: At | None = None


class Watch(Query):
    """Returns what has changed since a revision as `changes`, and waits if nothing has.

    A change has the `type` `MODIFIED` with the `object` as it is now, or `DELETED` with its `key`
    and, as `version`, the position of the log at which it was deleted; 0 if that is not known.
    Several changes of one object may come as one. `revision` is where the next `Watch` continues;
    `newest` is the revision that the replica of the gateway has read, which an answer that is full
    does not reach.
    An object that no longer has the selected labels or fields comes as `DELETED`. A revision that
    is too old is refused with the reason `Expired`: list the objects again.

    kind: the kind of the objects.
    cluster: the cluster of the objects; empty for all clusters.
    label_selector, field_selector: which objects to watch, as `nodepool get` takes them.
    since: the `revision` of the previous answer.
    limit: the most changes of the answer.
    wait_seconds: how long to wait for a change.
    """

    kind: Kind
    cluster: Name = ""
    label_selector: Selector = ""
    field_selector: Selector = ""
    since: Annotated[str, Field(min_length=1, max_length=100)]
    limit: Limit = 100
    wait_seconds: Wait = 20.0


class Events(Query):
    """Returns Kubernetes events of a cluster as `items`, in the order of the log.

    `after` of the answer is where the next page begins; `atEnd` says that the log has no more. The
    log begins at `first`; `trimmed` says that what is asked for may have lain before.

    cluster: the cluster of the events.
    pool, node: only events of this NodePool or of this Node.
    after: only events after this position of the log.
    since: only events that were stored at this time or later.
    limit: the most events of the answer.
    at: the moment of the past that the answer shows; none for the present.
    """

    cluster: Annotated[str, Field(min_length=1, max_length=SUBDOMAIN_LIMIT)]
    pool: Name = ""
    node: Name = ""
    after: Position = 0
    since: AwareDatetime | None = None
    limit: Limit = 100
    at: At | None = None


class Messages(Query):
    """Returns events of a cluster as they are in the log, as `items`, in their order.

    An item has the `position`, the `time`, the `subject` and the `event` itself, a CloudEvent.
    `log` is the identity of the log, and `time` when it ended at `position`. `after`, `atEnd`
    and `first` are those of `Events`.

    cluster: the cluster of the events.
    names: the names of the events, such as `NodePoolValidated`.
    pool: only events of this NodePool and its Nodes.
    last: only the newest event of each name.
    after: only events after this position of the log.
    since: only events that were stored at this time or later.
    limit: the most events of the answer.
    release: of an agent that follows its cluster; `nodepool doctor` shows it.
    at: the moment of the past that the answer shows; none for the present.
    """

    cluster: Annotated[str, Field(min_length=1, max_length=SUBDOMAIN_LIMIT)]
    names: Annotated[tuple[Name, ...], Field(min_length=1, max_length=NAMES_MAX)]
    pool: Name = ""
    last: bool = False
    after: Position = 0
    since: AwareDatetime | None = None
    limit: Limit = 100
    release: Annotated[str, Field(max_length=RELEASE_MAX)] = ""
    at: At | None = None


class Audit(Query):
    """Returns the commands of the organisation as `items`, each with its sender and its outcome.

    A command that has no outcome yet has none. `after`, `atEnd` and `first` are those of `Events`.

    cluster: the cluster of the commands; empty for all clusters, and for quotas.
    pool: only commands about this NodePool and its Nodes.
    last: only the command that changed the NodePool last.
    after: only commands after this position of the log.
    since: only commands that were stored at this time or later.
    limit: the most commands of the answer.
    at: the moment of the past that the answer shows; none for the present.
    """

    cluster: Name = ""
    pool: Name = ""
    last: bool = False
    after: Position = 0
    since: AwareDatetime | None = None
    limit: Limit = 100
    at: At | None = None


class Explain(Query):
    """Returns why a NodePool lacks Nodes: a `sentence` and the ranked `causes`.

    cluster, pool: the NodePool.
    not_older_than: the position of the log that the answer must show; the query waits for it.
    current: whether the answer must show all that the log has when the query arrives.
    at: the moment of the past that the answer shows; none for the present.
    """

    cluster: Annotated[str, Field(min_length=1, max_length=SUBDOMAIN_LIMIT)]
    pool: Annotated[str, Field(min_length=1, max_length=SUBDOMAIN_LIMIT)]
    not_older_than: Position = 0
    current: bool = False
    at: At | None = None


class Moment(Query):
    """Returns the `position` and the `time` of a moment of the past.

    at: a position of the log, or a time.
    """

    at: At


class FindCapacity(Query):
    """Returns the `zones` that likely have these spot Nodes, best first; reserves nothing.

    selections: how many Nodes of which instance types; each type once.
    at: the moment of the past that the answer shows; none for the present.
    """

    selections: CapacitySelections
    at: At | None = None


class Users(Query):
    """Returns the users of the organisation as `items`, in the order of their names, now.

    An item has the `user` and the `role`, and an agent the `cluster`. An answer has at most
    `LIMIT_MAX` users; `total` is how many there are.
    """


QUERIES: Final[Mapping[str, type[Query]]] = {
    kind.__name__: kind
    for kind in (Get, List, Watch, Events, Messages, Audit, Explain, Moment, FindCapacity, Users)
}
"""Every query by the last token of its subject."""


def query_in(name: str, content: bytes) -> Query | tuple[str, str]:
    """Return the query in a request; if it is invalid, the field at fault and one sentence."""
    kind = QUERIES.get(name)
    if kind is None:
        return "subject", f"{name} is no query{did_you_mean(name, QUERIES)}"
    if len(content) > QUERY_BYTES_MAX:
        return "", f"the query has {len(content)} bytes; at most {QUERY_BYTES_MAX} are taken"
    try:
        return kind.model_validate_json(
            content or b"{}", strict=True, extra="forbid", by_alias=True, by_name=False
        )
    except ValidationError as error:
        return explain(error)
