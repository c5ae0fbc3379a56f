//! A disk whose sync can be held up, and a way to commit many objects at once.

use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::{fmt, io};

use redb::backends::InMemoryBackend;
use redb::{BackendError, StorageBackend};
use shardcache_storage::{Action, Change, Draft, Guard, Key, PLACEHOLDER, Span, Spans, TypeName};

use crate::wire::PATIENCE;

/// Holds up every sync while it is shut.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    shut: bool,
    waiting: usize,
}

impl Gate {
    pub(super) fn shut(&self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).shut = true;
    }

    pub(super) fn open(&self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).shut = false;
        self.0.1.notify_all();
    }

    /// Blocks until a sync waits at the gate.
    pub(super) fn wait_for_a_sync(&self) {
        let state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(state, PATIENCE, |state| state.waiting == 0);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(state.waiting > 0, "nothing is synced");
    }

    fn pass(&self) {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        self.0.1.notify_all();
        state = self.0.1.wait_while(state, |state| state.shut).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
    }
}

/// A disk in memory behind a [`Gate`].
pub(super) struct GatedDisk {
    disk: InMemoryBackend,
    gate: Gate,
}

impl GatedDisk {
    pub(super) fn new(gate: Gate) -> Self {
        Self { disk: InMemoryBackend::new(), gate }
    }
}

impl fmt::Debug for GatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GatedDisk")
    }
}

impl StorageBackend for GatedDisk {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass();
        self.disk.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write(offset, data)
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.disk.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.disk.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.disk.unlock_range(start, end)
    }
}

/// One object of a batch: as ingest would encode it.
pub(super) fn put(name: &str, value: usize, fill: usize) -> Change {
    let digits = std::str::from_utf8(PLACEHOLDER).expect("digits");
    let metadata = format!(
        r#"{{"name":"{name}","resourceVersion":"{digits}","annotations":{{"kcp.io/shard":"amber","kcp.io/cluster":"root"}}}}"#
    );
    let before = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":"#;
    let fill = "x".repeat(fill);
    let body = format!(r#"{before}{metadata},"spec":{{"value":{value},"fill":"{fill}"}}}}"#);
    let digits_at = body.find(digits).expect("the template has it");
    let version = "rbac.authorization.k8s.io/v1";
    let spans = Spans {
        resource_version_at: digits_at as u32,
        metadata: Span { at: before.len() as u32, len: metadata.len() as u32 },
        api_version: Span { at: body.find(version).expect("it has") as u32, len: version.len() as u32 },
        uid: Span::default(),
    };
    let key = Key::new("amber", "root", "", name).expect("no NUL");
    let labels: [(&str, &str); 0] = [];
    let draft = Draft::new(&key, &labels, body.as_bytes(), spans).expect("small and well-formed");
    Change {
        type_name: TypeName::new("rbac.authorization.k8s.io", "clusterroles"),
        key,
        guard: Guard::default(),
        action: Action::Put(draft),
    }
}
