#!/usr/bin/env bash
# Builds the reference apiserver: build.sh OUTPUT. What it says on /version is the release it is built from.
set -euo pipefail
output=$(realpath -m "${1:?where to put the binary}")
cd "$(dirname "$0")"
version=$(go list -m -f '{{.Version}}' k8s.io/apiserver)
IFS=. read -r _ minor _ <<<"${version#v}"
about=k8s.io/component-base/version
exec go build -p 2 -o "$output" -ldflags "-s -w -X $about.gitVersion=v1.${version#v0.} \
  -X $about.gitMajor=1 -X $about.gitMinor=$minor -X $about.gitTreeState=clean" .
