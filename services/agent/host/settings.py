"""The settings of the agent, read from the environment once."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError
from yaml import MarkedYAMLError, YAMLError

from agent.actions import Place
from nodepool.client.errors import Refused
from nodepool.client.holder import holder_of
from nodepool.client.names import check_name
from nodepool.host.settings import PREFIX, Settings, SettingsError, read
from nodepool.nats.wire.files import open_file

LEASE_NAMESPACE = "kube-system"
LEASE_NAME = "nodepool-agent"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of one agent.

    service: the settings that every service has.
    place: the organisation, cluster and zone of the Kubernetes cluster.
    kubeconfig: how to reach the API server.
    lease_namespace, lease_name: the Lease that one of several replicas holds.
    """

    service: Settings
    place: Place
    kubeconfig: SingleConfig
    lease_namespace: str = LEASE_NAMESPACE
    lease_name: str = LEASE_NAME

    def list_settings(self) -> Mapping[str, object]:
        """Return every setting by its name, without secrets."""
        return {
            **self.service.list_settings(),
            "org": self.place.org,
            "cluster": self.place.cluster,
            "zone": self.place.zone,
            "api_server": self.kubeconfig.cluster.server,
            "lease": f"{self.lease_namespace}/{self.lease_name}",
        }


def read_agent(environment: Mapping[str, str] = os.environ) -> AgentSettings:
    """Return the settings from `NODEPOOL_*` and `KUBECONFIG`.

    Raise SettingsError, which names the variable, if a variable is missing or cannot be used.
    """
    service = read(environment)
    place = Place(*(_read_name(environment, name) for name in ("ORG", "CLUSTER", "ZONE")))
    holder = holder_of(service.access)
    if holder is not None and holder.org != place.org:
        text = f"the credentials are those of {holder}"
        raise SettingsError(f"{PREFIX}ORG is {place.org}, and {text}; set it to {holder.org}")
    return AgentSettings(
        service,
        place,
        _kubeconfig(environment.get("KUBECONFIG", "")),
        environment.get(f"{PREFIX}LEASE_NAMESPACE", LEASE_NAMESPACE),
        environment.get(f"{PREFIX}LEASE_NAME", LEASE_NAME),
    )


def _read_name(environment: Mapping[str, str], name: str) -> str:
    variable = PREFIX + name
    value = environment.get(variable, "")
    if not value:
        raise SettingsError(f"{variable} is not set; it names the {name.lower()} of the agent")
    try:
        return check_name(variable, value)
    except Refused as refusal:
        raise SettingsError(str(refusal)) from None


def _kubeconfig(path: str) -> SingleConfig:
    """How the API server is reached: as a file says, else with the account of the Pod."""
    try:
        if path:
            open_file(path).close()
        # kubectl merges the contexts of several files, separated by colons; an agent has one file.
        config = KubeConfig.from_file(Path(path)) if path else KubeConfig.from_service_account()
        found = config.get()
    except ConfigError as error:
        hint = "" if path else "; set KUBECONFIG outside a cluster"
        raise SettingsError(f"KUBECONFIG: {error}{hint}") from None
    except MarkedYAMLError as error:  # Its text quotes the file, which may hold a token.
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SettingsError(f"KUBECONFIG: {path} is no valid YAML in line {line}") from None
    except (OSError, ValueError, LookupError, TypeError, YAMLError) as error:
        raise SettingsError(f"KUBECONFIG: {path}: {type(error).__name__}: {error}") from None
    if found is None:
        raise SettingsError(f"KUBECONFIG: {path} has no current context")
    if found.user is None:
        raise SettingsError(f"KUBECONFIG: {path} has no user in its current context")
    return found
