import subprocess
import sys


def test_another_client_in_the_process_can_use_the_web_socket_of_the_nats_library() -> None:
    """The product loads no aiohttp, and leaves it to those who use it."""
    script = (
        "import asyncio, sys, nodepool.client\n"
        "import nodepool.client.client\n"
        "assert 'aiohttp' not in sys.modules\n"
        "from nats.aio.transport import WebSocketTransport\n"
        "async def close() -> None:\n"
        "    await WebSocketTransport()._client.close()\n"
        "asyncio.run(close())\n"
        "sys.exit('aiohttp.client' not in sys.modules)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
