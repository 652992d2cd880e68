"""The client as a whole."""

from nodepool.client.locks import Locks
from nodepool.client.pods import PodStream
from nodepool.client.reading import ReadingClient
from nodepool.client.stored import StoredPools


class Client(Locks, ReadingClient, StoredPools, PodStream):
    """A client of the control plane, to be used as `async with Client(...) as client`.

    url: the NATS server, or several servers of one NATS cluster, separated by commas.
    org, cluster: the organisation and cluster that the client reads and changes.
    timeout_s: how long an outcome or a reply of the server may take, in seconds.
    source: the name of the program, for the `source` of its commands.
    access: files with the certificates to trust, and with the client's certificate, credentials
        or password.

    Every method may raise `Unreachable`. A method that sends one command may also raise `Refused`,
    or `NoOutcome` if no outcome arrives in time.
    """
