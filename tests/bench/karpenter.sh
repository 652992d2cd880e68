#!/usr/bin/env bash
# Karpenter with its provider for kwok, from its Go module, for `python -m bench --only kubernetes`.
# Some 10 CPU minutes with cold caches. It goes where `make testbed` puts its programs.
set -euo pipefail
karpenter=v1.14.1
to="${XDG_CACHE_HOME:-$HOME/.cache}/nodepool/karpenter"
[ -e "$to/$karpenter" ] && exit 0
echo "building Karpenter $karpenter into $to"
cd / # Outside of any module: Karpenter brings its own.
GOBIN="$to" CGO_ENABLED=0 go install -trimpath -ldflags "-s -w" "sigs.k8s.io/karpenter/kwok@$karpenter"
module="$(go env GOMODCACHE)/sigs.k8s.io/karpenter@$karpenter"
rm -rf "$to/crds"
install -m 644 -D -t "$to/crds" "$module"/pkg/apis/crds/*.yaml "$module"/kwok/apis/crds/*.yaml
touch "$to/$karpenter"
