#!/usr/bin/env bash
# A Kubernetes control plane and kwok, which plays the kubelets, from their Go modules: build.sh FOLDER
# Does nothing where the folder has them already. Some 15 CPU minutes and 5 GB with cold caches.
set -euo pipefail
cd "$(dirname "$0")"
kubernetes=v1.36.3 kwok=v0.8.0 operator=v0.85.0
to=${1:?usage: build.sh FOLDER}
stamp="$to/$kubernetes-$kwok-$(cat ./*.go go.mod go.sum build.sh | sha256sum | cut -c 1-12)"
[ -e "$stamp" ] && exit 0
mkdir -p "$to"
echo "building Kubernetes $kubernetes and kwok $kwok into $to"
# Without a version the components refuse their own.
version=k8s.io/component-base/version
values="-X $version.gitVersion=$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=36 -X $version.gitTreeState=clean"
go build -trimpath -ldflags "-s -w $values" -o "$to/testbed" .
GOBIN="$to" CGO_ENABLED=0 go install -trimpath -ldflags "-s -w" "sigs.k8s.io/kwok/cmd/kwok@$kwok"
# What kwok does with a Node or a Pod is configured; its module has the usual stages.
stages="$(go env GOMODCACHE)/sigs.k8s.io/kwok@$kwok/kustomize/stage"
install -m 644 -D -t "$to/stages" "$stages"/node/fast/node-*.yaml \
    "$stages"/node/heartbeat-with-lease/node-*.yaml "$stages"/pod/fast/pod-*.yaml
# The types of the Prometheus operator, for the manifests that are of them.
module="github.com/prometheus-operator/prometheus-operator@$operator"
# Outside of this module: it is no dependency of the program.
(cd / && go mod download "$module")
types="$(go env GOMODCACHE)/$module/example/prometheus-operator-crd"
install -m 644 -D -t "$to/crds" "$types"/monitoring.coreos.com_{podmonitors,prometheusrules,servicemonitors}.yaml
touch "$stamp"
