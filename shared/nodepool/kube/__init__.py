"""What an edge service of a Kubernetes cluster needs of its API server, whatever it is for.

`api` sends requests and opens watches, over the connections of `session`. `informer` keeps the
objects of one kind current. `lease` elects one of several replicas. `events` records Events.
`queue` hands out keys to compare, and `pacing` limits how often something is repeated. Nothing here
knows NodePools.

lightkube, an optional dependency, reads the kubeconfig and the credentials in it: those that
expire, plug-ins for credentials, and certificates. aiohttp, another one, sends the requests. The
client of lightkube is not used: a request takes four times the processor time, its deletion takes
no preconditions, its watch splits lines at U+0085, which people may write in any annotation, and it
has no limit for a line or for silence.
"""
