//! Random requests against a whole server, judged by the reference machine M.
//!
//! One server, two ways to it at once: a socket, and the service in process. Every read is made
//! through both and must be the same byte for byte; writes take turns; every watch is read through
//! both, line by line as M says, and through the checker. The server restarts on its store, history is
//! compacted, watches are cut and resumed.
//!
//! `SHARDCACHE_MODEL_CASES=1000 cargo test --test it model_http` runs so many scripts. A failure prints
//! the shrunk script and keeps its seed in `tests/it/model_http/regressions.txt`.

mod oracle;
mod reading;
mod script;
mod session;
mod watching;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};

use crate::stand::Setting;
use session::Session;

/// How long anything may take that has to happen at once.
pub(crate) const STEP_PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn d78_the_api_is_the_machine() {
    let asked = std::env::var("SHARDCACHE_MODEL_CASES").ok();
    let config = Config {
        cases: asked.map_or(24, |asked| asked.parse().expect("SHARDCACHE_MODEL_CASES is a number")),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/it/model_http/regressions.txt",
        ))),
        // A failing script may wait for what never comes.
        max_shrink_time: 120_000,
        ..Config::default()
    };
    let inputs = (any::<bool>(), script::script(50));
    let outcome = TestRunner::new(config).run(&inputs, |(forgetful, script)| {
        let mut setting = Setting::default();
        if forgetful {
            // The log on disk has to answer for what memory no longer holds.
            setting.cache.history_bytes = 0;
            setting.cache.snapshots_max = 1;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(async {
            Session::start(dir.path(), setting).await.run(&script).await;
        });
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
