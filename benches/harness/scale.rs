//! What is said while it runs, and how much smaller everything is when the harness is only tried.

/// Progress, for whoever waits.
pub(crate) fn note(line: &str) {
    eprintln!("{line}");
}

#[expect(clippy::print_stdout, reason = "a benchmark's output is its report")]
pub(crate) fn print(text: &str) {
    println!("{text}");
}

/// What `SHARDCACHE_BENCH_SCALE` makes everything smaller by.
fn scale() -> f64 {
    std::env::var("SHARDCACHE_BENCH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0)
}

/// Whether times count.
pub(crate) fn full_scale() -> bool {
    scale() >= 1.0
}

/// A size under `SHARDCACHE_BENCH_SCALE`, at least 1.
#[expect(clippy::cast_sign_loss, reason = "sizes are never negative")]
pub(crate) fn scaled(full: usize) -> usize {
    ((full as f64 * scale().min(1.0)) as usize).max(1)
}

/// How often something is repeated within a turn: as sizes.
pub(crate) fn repetitions(full: usize) -> usize {
    scaled(full)
}

/// Rounds: one is enough to try the harness.
pub(crate) fn scaled_rounds(full: usize) -> usize {
    if full_scale() { full } else { 1 }
}
