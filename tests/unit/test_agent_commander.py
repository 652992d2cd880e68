"""When the agent compares again what it has sent a command about."""

import asyncio

import structlog

from agent.actions import Send
from agent.host.commander import SHOWN_S, Commander
from agent.host.log import LogReader
from agent.host.model import BusModel
from agent.host.work import Work, node_key
from agent.nodes.objects import WantedNode
from nodepool.client.sender import PendingOutcomes, Sender
from nodepool.contract.commands import CordonNode
from nodepool.contract.events import CommandAccepted
from nodepool.contract.messages import Command
from nodepool.contract.model import NodePhase
from nodepool.nats.log.reader import Reader
from nodepool.nats.log.streams import STREAM
from nodepool.nats.wire.connection import Connection

KEY = node_key("n1")
CORDON = Send("u1.1.cordon.5", CordonNode(org="acme", cluster="prod", pool="train", node="n1"))
NODE = WantedNode("n1", "zone-a", "train", 1, "5", NodePhase.PRODUCTION)


class Accepting(Sender[CommandAccepted]):
    """A bus that accepts every command at once."""

    async def send(self, command: Command, id: str = "") -> CommandAccepted:
        name = type(command).__name__
        return CommandAccepted(
            org="acme", cluster="prod", pool="train", command=name, result="configured"
        )


async def test_a_node_is_compared_once_a_command_counts_as_shown_whatever_else_wakes_it() -> None:
    # given an accepted command about a Node that the read model does not show
    work = Work(lambda: True)
    queue, model = work.queue, BusModel(work.wake)
    model.nodes["n1"] = NODE
    events = LogReader()
    commander = Commander(model, events, work, structlog.get_logger())
    connection = Connection()
    outcomes = PendingOutcomes(Reader(connection, STREAM, []), CommandAccepted)
    sender = Accepting(connection, outcomes, source="agent", timeout_s=1.0)
    commander.begin(sender)
    began = asyncio.get_running_loop().time()
    commander.send(KEY, CORDON)
    async with asyncio.timeout(SHOWN_S):
        while not queue.take(began):  # noqa: ASYNC110  # The outcome comes by itself.
            await asyncio.sleep(0)

    # when it is compared, and again for another reason
    shown = []
    for _ in range(2):
        attempt = commander.attempt(KEY, began)
        shown.append(attempt and attempt.is_shown)
        queue.done(KEY)
        queue.add(KEY)
        queue.take(began)
    attempt = commander.attempt(KEY, began)
    queue.done(KEY)

    # then it is compared again when the command counts as shown, and then it is
    due = queue.next_due()
    assert due is not None
    assert SHOWN_S <= due - began < 2 * SHOWN_S
    assert queue.take(due) == KEY
    attempt = commander.attempt(KEY, due)
    shown.append(attempt and attempt.is_shown)
    assert shown == [False, False, True]
