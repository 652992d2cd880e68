"""A helper process that ends a child of this process if this process is killed."""

import os
import subprocess

_SERVER = 'kill -s TERM "$0"'
_GROUP = """
kill -s TERM -- "-$0"
while [ "$1" -gt 0 ] && kill -s 0 -- "-$0"; do sleep 1; set -- $(($1 - 1)); done
kill -s KILL -- "-$0"
"""


def environment_without_settings() -> dict[str, str]:
    """Return the environment for a program that reads no settings, which may hold a password."""
    return {name: text for name, text in os.environ.items() if not name.startswith("NODEPOOL_")}


class Guard:
    """A shell that sends SIGTERM to another process once this one is gone.

    The shell reads a pipe whose other end only this process holds. The kernel closes that end even
    after SIGKILL. PR_SET_PDEATHSIG is no alternative: it sends the signal when the thread that
    started the other process ends, needs code between fork and exec, and exists only on Linux.
    """

    def __init__(self, pid: int, *, group_grace_s: int | None = None) -> None:
        """`group_grace_s`: for a whole process group, after how many seconds it gets SIGKILL."""
        script = _SERVER if group_grace_s is None else _GROUP
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", f"read -r _; {script}", str(pid), str(group_grace_s or 0)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment_without_settings(),
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End the guard without a signal to the guarded process, whose id may be reused soon."""
        self._process.kill()
        self._process.communicate()
