"""NodePools: reading, changing and awaiting them."""

from typing import TYPE_CHECKING

from nodepool.client.accepted import VALIDATED
from nodepool.client.commands import Commands
from nodepool.client.errors import NotFound, Refused
from nodepool.client.names import check_name
from nodepool.client.objects import Document, Objects
from nodepool.client.session import Session
from nodepool.contract.keys import token

if TYPE_CHECKING:
    from nodepool.client.manifests import Manifest
    from nodepool.contract.commands import ApplyNodePool
    from nodepool.contract.events import CommandAccepted, NodePoolValidated


class NodePools:
    """The NodePools of the cluster, as `client.nodepools`.

    The methods that read and wait are those of `Objects`. The methods whose name contains `stored`
    read a NodePool's desired state in the log, which holds it as soon as it holds the outcome of
    the command.
    """

    def __init__(self, session: Session, commands: Commands) -> None:
        self._session = session
        self._send = commands.send
        self._of = commands.fields_of
        objects = Objects(session, "nodepools")
        self.get, self.list, self.watch = objects.get, objects.list, objects.watch
        self.follow, self.catch_up = objects.follow, objects.catch_up
        self.wait, self.wait_for = objects.wait, objects.wait_for
        self.wait_until_created = objects.wait_until_created
        self.wait_until_gone = objects.wait_until_gone

    async def apply(
        self, manifest: "ApplyNodePool | Document | str", *, dry_run: bool = False
    ) -> "CommandAccepted":
        """Create or change a NodePool, given as a command, a manifest, or its YAML.

        Also raises `Refused` for a manifest that cannot be read. To apply many NodePools, pass
        `commands.send_many` the result of `address_manifest` for each NodePool.
        """
        command = _apply_command(manifest).model_copy(update={"dry_run": dry_run})
        return await self._send(self.address_manifest(command))

    async def scale(
        self, pool: str, target: int, *, version: str | None = None, dry_run: bool = False
    ) -> "CommandAccepted":
        """Set `spec.targetNodes` of a NodePool, or `spec.targetRacks` if the NodePool uses it.

        version: the resourceVersion that the NodePool must still have.
        """
        from nodepool.contract.commands import ScaleNodePool

        return await self._send(
            ScaleNodePool(
                **self._of(pool), target_nodes=target, resource_version=version, dry_run=dry_run
            )
        )

    async def delete(
        self, pool: str, *, version: str | None = None, dry_run: bool = False
    ) -> "CommandAccepted":
        """Begin to remove a NodePool and its Nodes; `wait_until_gone` waits for the end.

        version: the resourceVersion that the NodePool must still have.
        """
        from nodepool.contract.commands import DeleteNodePool

        return await self._send(
            DeleteNodePool(**self._of(pool), resource_version=version, dry_run=dry_run)
        )

    def address_manifest(self, manifest: "ApplyNodePool | Manifest") -> "ApplyNodePool":
        """Return a manifest as a command for this client's organisation and cluster."""
        from nodepool.client.manifests import Manifest

        command = manifest.command if isinstance(manifest, Manifest) else manifest
        return command.model_copy(update=dict(self._of(command.metadata.name)))

    async def read_stored(self, pool: str) -> "NodePoolValidated":
        """Return the newest spec of a NodePool, with its verdict; raise `NotFound` without it."""
        event = await self.find_stored(pool)
        if event is None:
            place = f"{self._session.org}/{self._session.cluster}"
            raise NotFound(f'nodepool "{pool}" not found in {place}')
        return event

    async def find_stored(self, pool: str) -> "NodePoolValidated | None":
        """Return the same as `read_stored`; None if there is no such NodePool."""
        return await self._session.backend.find_stored(pool)

    async def explain(self, pool: str) -> Document | None:
        """Return why a NodePool lacks Nodes, as the gateway explains it.

        Returns None if the client does not work through the gateway, or without a NodePool.
        """
        return await self._session.backend.explain(check_name("name", pool))

    async def was_stored(self, pool: str) -> bool:
        """Return whether there is, or ever was, a NodePool of this name; of any name for `*`.

        A trimmed log does not say what never was; then the answer is yes.
        """
        name = pool if pool == "*" else token(check_name("name", pool))
        event = await self._session.last_event(VALIDATED, name, from_leader=True)
        return event is not None or await self._session.is_trimmed()


def _apply_command(manifest: "ApplyNodePool | Document | str") -> "ApplyNodePool":
    from nodepool.client.manifests import ManifestError, parse_manifest, parse_manifests
    from nodepool.contract.commands import ApplyNodePool

    if isinstance(manifest, ApplyNodePool):
        return manifest
    try:
        if not isinstance(manifest, str):
            return parse_manifest(manifest, "the manifest")
        parsed = parse_manifests(manifest, "the manifest")
    except ManifestError as error:
        raise Refused("", "Invalid", str(error)) from None
    if len(parsed) > 1:
        raise Refused("", "Invalid", f"holds {len(parsed)} manifests; use send_many for several")
    return parsed[0].command
