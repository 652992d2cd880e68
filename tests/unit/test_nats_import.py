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


def test_another_client_in_the_process_can_use_jetstream_of_the_nats_library() -> None:
    """The product loads no client of JetStream, and leaves it to those who use it."""
    script = (
        "import sys, nodepool.client.client, nats\n"
        "assert not [name for name in sys.modules if name.startswith('nats.js')]\n"
        "context = nats.NATS().jetstream()\n"
        "assert type(context) is nats.js.JetStreamContext\n"
        "from nats.js.api import Header\n"
        "assert nats.js.api.Header is Header\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


def test_headers_that_the_nats_library_reads_have_the_names_that_it_gives_them() -> None:
    script = (
        "import nodepool.client.client, nats\n"
        "used = nats.js.api.Header\n"
        "from nats.js.api import Header\n"
        "assert used is not Header\n"
        "assert {each.name: each.value for each in used}"
        " == {each.name: Header[each.name].value for each in used}\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


def test_a_postponed_module_is_loaded_when_it_is_used() -> None:
    script = (
        "import sys\n"
        "from nodepool.nats.wire.postponed import Postponed, postpone\n"
        "with postpone('wave'):\n"
        "    import wave\n"
        "    try:\n"
        "        import wave.reader\n"
        "    except ImportError:\n"
        "        pass\n"
        "assert isinstance(wave, Postponed) and 'wave' not in sys.modules\n"
        "assert wave.Error.__name__ == 'Error' and 'wave' in sys.modules\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
