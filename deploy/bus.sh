#!/bin/sh
# Starts the server, on a log from before there were accounts as well: the server had it in the account
# $G, and nothing finds it there any more. No other server uses the volume meanwhile.
set -eu
streams=/data/jetstream
if [ -d "$streams/\$G/streams" ]; then
    if [ -e "$streams/PLATFORM" ]; then
        echo "$streams has streams of \$G and of PLATFORM: move the older ones away, and start again" >&2
        exit 1
    fi
    mv "$streams/\$G" "$streams/PLATFORM"
fi
# Servers of a cluster agree on which streams there are, and delete others: nothing can be moved there.
streams=/data/cluster/jetstream
if [ "${2:-}" = /etc/nats/cluster.conf ] && [ -d "$streams/\$G" ] && [ ! -e "$streams/PLATFORM" ]; then
    echo "$streams is from before there were accounts, and a cluster cannot take it over: 'nodepool" \
        "backup' it with the release that wrote it, then 'nodepool restore' it; see deploy/README.md" >&2
    exit 1
fi
exec nats-server "$@"
