"""The checks of the gateway: the only check of a user of an organisation, and one of operators."""

from collections.abc import AsyncGenerator
from typing import Final

from nodepool.client.client import Client
from nodepool.client.doctor.finding import Finding, note, ok, problem
from nodepool.client.errors import ClientError
from nodepool.client.usage import count_replicas
from nodepool.contract.counting import format_count
from nodepool.nats.wire.access import Access

GATEWAY = "gateway"
OPERATOR: Final = "operator, platform"
"""The comment in the credentials of operators where organisations have accounts of their own."""
REPLICA_S = 2.0
"""How long the first replica may take to answer, in seconds."""
ASK = "ask an operator of the platform, to whom 'nodepool doctor' says more"


async def gateway(client: Client) -> AsyncGenerator[Finding, None]:
    """Yield whether the gateway answers the user of these credentials with all that the log has."""
    async with client:
        try:
            position = await client.events.newest_position()
        except ClientError as error:
            yield problem(GATEWAY, str(error), ASK)
            return
    user = client.session.holder or f"a user of {client.org}"
    yield ok(GATEWAY, f"it answers {user} and shows the log up to position {position}")
    yield note(
        "platform", "only operators see the log, the services, the read model and dead letters", ASK
    )


async def gateway_replicas(client: Client, access: Access) -> AsyncGenerator[Finding, None]:
    """Yield whether a replica answers, for operators whose organisations need one."""
    if OPERATOR not in access.comments():
        return
    check = f"service {GATEWAY}"
    async with client:
        count = await count_replicas(client.session, REPLICA_S)
    if count:
        yield ok(check, f"{format_count(count, 'replica')} answer{'s' * (count == 1)}")
        return
    text = "no replica answers: organisations see nothing, and their commands wait"
    fix = f"see its /livez; kill the process (SIGKILL) if it is there; then: python -m {GATEWAY}"
    yield problem(check, text, fix)
