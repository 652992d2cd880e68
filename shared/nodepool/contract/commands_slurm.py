"""The commands that the prolog and the epilog of a Slurm job send."""

from nodepool.contract.messages import Command, OfPool


class LockNode(Command, OfPool):
    """Takes the lock of a Node for a Slurm job: the prolog of the job.

    Pods that do not tolerate the lock are evicted; when the last of them is gone, `NodeLockChanged`
    says that the Node is locked. If the job has the lock or waits for it, that event is said again.
    Refused for a Node that another job has locked, that is cordoned, not in production or reserved
    for the control plane, or that leaves.

    node: its name.
    job: the id of the job.
    """

    node: str
    job: str


class UnlockNode(Command, OfPool):
    """Releases the lock of a Node, or ends the wait for it: the epilog of a Slurm job.

    Refused where another job has the lock; a Node without a lock stays as it is.

    node: its name.
    job: the id of the job that took the lock.
    """

    node: str
    job: str
