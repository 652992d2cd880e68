"""The node configurations that the Nodes of a NodePool were booted with."""

from typing import Final

from immutables import Map

from nodepool.contract.keys import node_profile
from nodepool.contract.model import NodePoolSpec, ReleaseTrain

Profiles = Map[str, int]
"""How many Nodes have each profile; a profile without Nodes is left out."""
DEFAULT_IMAGE: Final = "default"
PROFILES_MAX: Final = 10
"""The maximum number of inactive profiles that the status of a NodePool names."""


def profile_of(spec: NodePoolSpec) -> str:
    """Return the active node configuration of a spec as `<instanceType>/<image>`.

    The image is its name, then `:<kernel>` and `@latest` where the spec asks for these.
    """
    image = spec.image
    name = DEFAULT_IMAGE
    if image is not None:
        name = image.name or DEFAULT_IMAGE
        name += f":{image.kernel}" if image.kernel else ""
        name += f"@{image.release_train}" if image.release_train is ReleaseTrain.LATEST else ""
    return node_profile(spec.instance_type, name)


def counted_profiles(profiles: Profiles, profile: str, change: int) -> Profiles:
    """Return the counts with `change` more Nodes of a profile; an empty profile is not counted."""
    if not profile:
        return profiles
    count = profiles.get(profile, 0) + change
    if count > 0:
        return profiles.set(profile, count)
    return profiles.delete(profile) if profile in profiles else profiles


def other_profiles(profiles: Profiles, active: str) -> dict[str, int]:
    """Return the counts of the profiles that are not the active one, the most Nodes first."""
    others = sorted(
        ((profile, count) for profile, count in profiles.items() if profile != active),
        key=lambda pair: (-pair[1], pair[0]),
    )
    return dict(others[:PROFILES_MAX])
