"""The client for programs that only read."""

from nodepool.client.catching_up import CatchingUp
from nodepool.client.event_stream import EventStream
from nodepool.client.pod_list import PodReader
from nodepool.client.waiting import Waiting


class ReadingClient(Waiting, CatchingUp, EventStream, PodReader):
    """A client that reads and waits and sends nothing; it takes what `Client` takes.

    It is imported in a third of the time, for it decodes no message into a model unless it reads
    events. Every method may raise `Unreachable`.
    """
