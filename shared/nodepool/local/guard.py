"""A helper process that ends the nats-server if the process that started it is killed."""

import subprocess


class Guard:
    """A shell that sends SIGTERM to the server once this process is gone.

    It reads a pipe whose other end only this process holds: the kernel closes that end even after
    SIGKILL. Linux could signal the server by itself (PR_SET_PDEATHSIG), but does so when the thread
    that started it ends, needs code between fork and exec, and no other system has it.
    """

    def __init__(self, server_pid: int) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -TERM "$0"', str(server_pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """Ends the guard without a signal to the server, whose process id may be reused soon."""
        self._process.kill()
        self._process.communicate()
