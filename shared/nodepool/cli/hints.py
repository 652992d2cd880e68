"""What to use instead of verbs and flags of kubectl that `nodepool` does not have."""

from collections.abc import Iterable

from nodepool.contract.suggest import closest, did_you_mean

_CREDENTIALS = "set NODEPOOL_NKEY_FILE, or what the server requires instead; see shared/SETTINGS.md"
VERBS = {
    "logs": "use 'nodepool events' for what happened, 'kubectl logs' for a Pod; the logs of the"
    " services are in the folder 'logs' of the data directory",
    "run": "'nodepool fleet run-pod' starts a Pod on a simulated Node",
    "expose": "there are NodePools here and no Services",
    "autoscale": "set spec.autoscaling, spec.minNodes and spec.maxNodes with 'nodepool edit'",
    "taint": "set spec.nodeTaints of the NodePool with 'nodepool edit'",
    "top": "each service serves its metrics on /metrics; 'nodepool get capacity' counts machines",
    "capacity": "'nodepool find capacity' ranks zones, and 'nodepool get capacity' counts machines",
    "config": "set NODEPOOL_URL, NODEPOOL_ORG and NODEPOOL_CLUSTER, or use --url, --org, --cluster",
    "cluster-info": "use 'nodepool get clusters' or 'nodepool version'",
    "login": _CREDENTIALS,
    "ls": "use 'nodepool get'",
    "ps": "use 'nodepool get nodes'",
    "status": "use 'nodepool get', 'nodepool explain' or 'nodepool doctor'",
    "stop": "Ctrl-C stops 'nodepool up'",
    "rm": "use 'nodepool delete'",
    "kustomize": "render it with 'kubectl kustomize DIR | nodepool apply -f -'",
    "help": "use 'nodepool --help' or 'nodepool VERB --help'",
    "options": "use 'nodepool --help' or 'nodepool VERB --help'",
    "start": "use 'nodepool up'",
    "list": "use 'nodepool get'",
    "show": "use 'nodepool describe'",
    "watch": "use 'nodepool get -w' or 'nodepool events -w'",
    "update": "use 'nodepool apply', 'edit' or 'patch'",
    "remove": "use 'nodepool delete'",
    "resize": "use 'nodepool scale --target N'",
    "history": "the log keeps every change; 'nodepool events --for nodepool/NAME' shows them",
    "undo": "apply the earlier manifest again",
    "pause": "use 'nodepool scale' or 'nodepool edit'; a target is followed at once",
    "restart": "'nodepool reboot' reboots a Node",
}
_POD_VERBS = ("exec", "attach", "cp", "port-forward", "debug", "proxy")
VERBS |= {
    verb: f"use 'kubectl {verb}' on a cluster of Kubernetes; 'nodepool describe node NAME' names"
    " the Pods of a Node"
    for verb in _POD_VERBS
}
VERBS["resume"] = VERBS["pause"]
_ORGANISATION = "NodePools have no namespace; choose with --org and --cluster"
_ADDRESS = "choose the control plane with --url, and with --org and --cluster whose objects"
_SERVER_SIDE = "every change is made by the server; leave it out"
FLAGS = {
    "-n": _ORGANISATION,
    "--namespace": _ORGANISATION,
    "--all": "name the objects, or leave it out where none are named",
    "-A": _ORGANISATION,
    "--all-namespaces": _ORGANISATION,
    "--context": _ADDRESS,
    "--kubeconfig": _ADDRESS,
    "--server": _ADDRESS,
    "-s": _ADDRESS,
    "--user": _CREDENTIALS,
    "--token": _CREDENTIALS,
    "--as": _CREDENTIALS,
    "--server-side": _SERVER_SIDE,
    "--force-conflicts": _SERVER_SIDE,
    "--field-manager": _SERVER_SIDE,
    "--validate": "a manifest is always validated; leave it out",
    "--record": "the log keeps the cause of every change; leave it out",
    "--save-config": "apply needs no such annotation; leave it out",
    "--prune": "delete what is no longer wanted by 'nodepool delete', by name or with -l",
    "--subresource": "use 'nodepool scale' for the target; the status belongs to the control plane",
    "--replicas": "use --target",
    "--current-replicas": "use 'nodepool scale --current-replicas'",
    "--grace-period": "each Pod on a Node has its own grace period, and a drain honours it",
    "--force": "nothing can be forced: Nodes are drained before they leave",
    "--now": "nothing can be forced: Nodes are drained before they leave",
    "--timeout": "it is how long a command waits for a state; how long a reply may take is"
    " --request-timeout",
    "-k": "render it with 'kubectl kustomize DIR | nodepool apply -f -'",
    "--kustomize": "render it with 'kubectl kustomize DIR | nodepool apply -f -'",
    "--zone": "'--zone' belongs to quotas and to 'register cluster'; a NodePool has the zone of"
    " its cluster",
    "--verbose": "the services write logs, and 'nodepool events' shows what happened",
    "-v": "the services write logs, and 'nodepool events' shows what happened",
}


def about_verb(verb: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that says what to use instead of an unknown verb.

    The text is empty if no replacement is known.
    """
    hint = VERBS.get(verb.lower())
    return f"; {hint}" if hint else did_you_mean(verb, known)


def about_flag(flag: str, known: Iterable[str]) -> str:
    """Return what `about_verb` returns, for a flag that a command does not have."""
    hint = FLAGS.get(flag)
    if hint:
        return f"; {hint}"
    # The dashes are removed because all flags have them.
    names = [name.removeprefix("--") for name in known if name.startswith("--")]
    close = closest(flag.lstrip("-"), names)
    return f"; did you mean --{close}?" if close else ""
