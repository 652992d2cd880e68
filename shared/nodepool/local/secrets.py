"""The identities of an installation as Secrets of Kubernetes, for `kubectl apply -f -`."""

import base64
import json
from pathlib import Path
from typing import Final

from nodepool.auth.accounts import ARCHIVER, GATEWAY, PROVISIONER, SYSTEM_USER
from nodepool.auth.folder import AuthFolder
from nodepool.auth.users import AuthError
from nodepool.contract.services import EVERY, FEED, OPTIONAL

ACCOUNTS: Final = "nodepool-accounts"
"""The Secret that the servers mount."""
MEMBERS: Final = "nodepool-members"
"""The Secret that the gateway mounts."""
IN_CLUSTER: Final = (*EVERY, FEED, GATEWAY, ARCHIVER, PROVISIONER, SYSTEM_USER)
"""The users whose keys programs in the cluster show; the operator's stays where it is."""


def key_secret(user: str) -> str:
    """Return the name of the Secret with the key of a user."""
    return f"nodepool-key-{user}"


def secrets_text(folder: AuthFolder, namespace: str) -> str:
    """Return a Secret for each program, with what that program needs, as JSON.

    Raises AuthError if the folder lacks a file or cannot be read.
    """
    folder.users()
    files = {ACCOUNTS: folder.accounts_file, MEMBERS: folder.members_file}
    for user in IN_CLUSTER:
        key = folder.key_file(user)
        # An early release has made no key of a service that a cell may be without.
        if user not in OPTIONAL or key.exists():
            files[key_secret(user)] = key
    items = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/part-of": "nodepool"},
            },
            "type": "Opaque",
            "data": {path.name: base64.b64encode(_read(path)).decode()},
        }
        for name, path in files.items()
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        text = f"cannot read {path}: {error.strerror}"
        raise AuthError(f"{text}; 'nodepool auth init' makes what is missing") from None
