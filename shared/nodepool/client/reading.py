"""The client for programs that only read."""

from nodepool.client.catching_up import CatchingUp
from nodepool.client.event_stream import EventStream
from nodepool.client.pod_list import PodReader
from nodepool.client.waiting import Waiting


class ReadingClient(Waiting, CatchingUp, EventStream, PodReader):
    """A client that reads and waits but sends no commands; it takes the parameters of `Client`.

    Its import takes a third of the time, because only reading events needs the message models.
    Every method may raise `Unreachable`.
    """
