"""What a user of an organisation can see of the control plane: whether the gateway answers."""

from collections.abc import AsyncGenerator

from nodepool.client.client import Client
from nodepool.client.doctor.finding import Finding, note, ok, problem
from nodepool.client.errors import ClientError

GATEWAY = "gateway"
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
