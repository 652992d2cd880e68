"""The compose file at work, while what watches it is killed, and when its server comes last."""

import pytest

from containers.stack import Stack, docker, killed_and_started_again, only_root
from nodepool.contract.services import SHARED

pytestmark = pytest.mark.timeout(900)


@only_root
@pytest.mark.parametrize("name", ["prometheus", "alertmanager", "grafana"])
def test_what_watches_may_be_killed_and_work_goes_on(stack: Stack, name: str) -> None:
    killed_and_started_again(stack, name)


def test_services_that_start_before_their_server_wait_for_it(stack: Stack) -> None:
    # given services and a server that have stopped
    stack.run("stop", *SHARED, "nats")

    # when the services are there first
    for name in SHARED:
        for container in stack.containers(name):
            docker("start", container["Id"])
    stack.run("start", "nats")

    # then all come to work
    stack.wait_until_at_work()
