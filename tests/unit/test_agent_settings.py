"""The settings of the agent: what has to be set, and what is said where it is not."""

from pathlib import Path

import pytest

from agent.actions import Place
from agent.host.settings import read_agent
from nodepool.host.settings import SettingsError

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
NAMES = {"NODEPOOL_ORG": "acme", "NODEPOOL_CLUSTER": "prod", "NODEPOOL_ZONE": "US-EAST-04A"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A kubeconfig that can be used."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    return path


def test_the_place_the_api_server_and_the_lease_are_read_and_no_secret_is_shown(
    path: Path,
) -> None:
    settings = read_agent({**NAMES, "KUBECONFIG": str(path), "NODEPOOL_LEASE_NAME": "mine"})

    shown = settings.list_settings()
    assert settings.place == Place("acme", "prod", "US-EAST-04A")
    assert (shown["lease"], shown["api_server"]) == ("kube-system/mine", "https://127.0.0.1:6443")
    assert "secret" not in str(shown)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_that_is_missing_or_none_is_refused_by_its_variable(path: Path, name: str) -> None:
    for value in ("", "a b", "a.*"):
        with pytest.raises(SettingsError, match=f"^{name}"):
            read_agent({**NAMES, "KUBECONFIG": str(path), name: value})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("current-context: {", "KUBECONFIG: "),
        ("{}", "KUBECONFIG: "),
        (KUBECONFIG.replace("current-context: x", ""), "No current context"),
        (KUBECONFIG.replace("current-context: x", "current-context: y"), "'y' not found"),
        (KUBECONFIG.replace("user: u}", "user: v}"), "KUBECONFIG: "),
        (KUBECONFIG.replace(", user: u}", "}"), "no user"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_refused_in_one_line(
    path: Path, content: str, said: str
) -> None:
    path.write_text(content)

    with pytest.raises(SettingsError, match=said) as refused:
        read_agent({**NAMES, "KUBECONFIG": str(path)})
    assert "\n" not in str(refused.value)


def test_outside_a_cluster_and_without_a_kubeconfig_it_says_what_to_set() -> None:
    with pytest.raises(SettingsError, match="set KUBECONFIG outside a cluster"):
        read_agent(NAMES)
