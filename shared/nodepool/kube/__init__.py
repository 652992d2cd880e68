"""What an edge service of a Kubernetes cluster needs of its API server, whatever it is for.

`api` sends requests and opens watches. `informer` keeps the objects of one kind current. `lease`
elects one of several replicas. `events` records Events. `queue` hands out keys to compare, and
`pacing` limits how often something is repeated. Nothing here knows NodePools.

lightkube, an optional dependency, reads the kubeconfig and makes the connection: credentials that
expire, plug-ins for credentials, and certificates. Its verbs and its watch are not used. A deletion
of lightkube 1.0 takes no preconditions. Its watch splits lines at U+0085, which people may write in
any annotation, and it has no limit for a line or for silence.
"""
