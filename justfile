# Every developer command. CI runs the same steps through .ci/run.

# Lists the recipes.
default:
	@just --list

# Formatting, lints, documentation, dependency policy.
check:
	bash .ci/run fmt clippy doc deny

# All tests that `cargo test` runs.
test *ARGS:
	cargo test {{ARGS}}

# SIGKILL the real binary again and again.
crash rounds="200":
	SHARDCACHE_CRASH_ROUNDS={{rounds}} cargo test --test it crash_loop

# One fuzz target for some seconds; without a name, all of them.
fuzz target="" seconds="60":
	{{ if target == "" { "SHARDCACHE_FUZZ_SECONDS=" + seconds + " bash .ci/run fuzz" } else { "RUSTC_BOOTSTRAP=1 cargo fuzz run " + target + " -- -max_total_time=" + seconds } }}

# Stock clients against the real binary.
e2e:
	tests/clients/run.sh

# The same requests to a real apiserver, made-up ones for so many seconds.
differential seconds="20":
	SHARDCACHE_DIFFERENTIAL_SECONDS={{seconds}} bash .ci/run differential

# Replicators between real apiservers and the cache, and everything killed in turn.
replication objects="20000":
	SHARDCACHE_REPLICATION_OBJECTS={{objects}} bash .ci/run replication

# Benchmarks: criterion's, and the load driver over the real binary.
bench *ARGS:
	cargo bench {{ARGS}}

# Against a real kube-apiserver, writes docs/benchmarks/peers.md; some works by name. Needs go unless SHARDCACHE_REFERENCE_BIN is set.
bench-peers *WORKS:
	@[ -n "${SHARDCACHE_REFERENCE_BIN:-}" ] || tests/reference/build.sh "${CARGO_TARGET_DIR:-target}/reference"
	SHARDCACHE_REFERENCE_BIN="${SHARDCACHE_REFERENCE_BIN:-${CARGO_TARGET_DIR:-$PWD/target}/reference}" cargo bench -p shardcache --bench peers -- {{WORKS}}

# The push protocol and the replicator, writes docs/benchmarks/push.md; some works by name. Needs go as bench-peers does.
bench-push *WORKS:
	@[ -n "${SHARDCACHE_REFERENCE_BIN:-}" ] || tests/reference/build.sh "${CARGO_TARGET_DIR:-target}/reference"
	SHARDCACHE_REFERENCE_BIN="${SHARDCACHE_REFERENCE_BIN:-${CARGO_TARGET_DIR:-$PWD/target}/reference}" cargo bench -p shardcache --bench push -- {{WORKS}}

# What freshness costs, writes docs/benchmarks/freshness.md; some works by name. Needs go as bench-peers does.
bench-freshness *WORKS:
	@[ -n "${SHARDCACHE_REFERENCE_BIN:-}" ] || tests/reference/build.sh "${CARGO_TARGET_DIR:-target}/reference"
	SHARDCACHE_REFERENCE_BIN="${SHARDCACHE_REFERENCE_BIN:-${CARGO_TARGET_DIR:-$PWD/target}/reference}" cargo bench -p shardcache --bench freshness -- {{WORKS}}

# The server, built for speed, on the default address and directory.
run *ARGS:
	cargo run --release -- serve {{ARGS}}

# The embedded cache in an example controller.
example:
	cargo run --example embedded_controller

# Everything that CI runs.
ci:
	bash .ci/run

# A new decision record from the template.
adr title:
	@bash docs/adr/new.sh "{{title}}"
