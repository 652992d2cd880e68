"""An API server that nobody answers for, and a log that nobody reads."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lightkube.config.kubeconfig import KubeConfig
from lightkube.config.models import User

from agent.host.api import Api
from nodepool.host.logs import Logger, ServiceLog
from nodepool.host.settings import Settings


@asynccontextmanager
async def unanswered() -> AsyncIterator[tuple[Api, Logger]]:
    """Both, until the context ends."""
    log = ServiceLog("agent", Settings(log_file=os.devnull))
    config = KubeConfig.from_server("http://127.0.0.1:1").get()
    assert config is not None
    api = Api(config._replace(user=User()), lambda _request, _seconds: None)
    try:
        yield api, log.logger
    finally:
        await api.close()
        log.close()
