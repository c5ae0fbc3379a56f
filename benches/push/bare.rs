//! Bare redb: the rows of a store that was pushed into, written anew in the same commits and nothing else.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::time::Instant;

use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use crate::harness::verdict::Refusal;

/// As `storage/src/redb/tables.rs` has them.
const REVS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revs");
const TIMES: TableDefinition<'_, u64, u64> = TableDefinition::new("times");
const CELLS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("cells");
/// Page cache, as the server's.
const CACHE_BYTES: usize = 256 << 20;

/// Every row that a push left.
pub(crate) struct Rows {
    /// Revision and record of each object, in order.
    records: Vec<(u64, Vec<u8>)>,
    /// Revisions whose commit noted its time.
    times: BTreeMap<u64, u64>,
    /// How far the cell has come; rewritten by each commit.
    cells: Vec<(String, Vec<u8>)>,
}

impl Rows {
    /// Reads the store of a server that has ended.
    pub(crate) fn read(store: &Path) -> Result<Self, redb::Error> {
        let database = Database::open(store)?;
        let transaction = database.begin_read()?;
        let (mut records, mut times, mut cells) = (vec![], BTreeMap::new(), vec![]);
        for row in transaction.open_table(REVS)?.iter()? {
            let (revision, record) = row?;
            records.push((revision.value(), record.value().to_vec()));
        }
        for row in transaction.open_table(TIMES)?.iter()? {
            let (revision, ms) = row?;
            times.insert(revision.value(), ms.value());
        }
        for row in transaction.open_table(CELLS)?.iter()? {
            let (name, cell) = row?;
            cells.push((name.value().to_owned(), cell.value().to_vec()));
        }
        Ok(Self { records, times, cells })
    }

    /// Mean bytes of a record.
    pub(crate) fn record_bytes(&self) -> f64 {
        let bytes: usize = self.records.iter().map(|(_, record)| record.len()).sum();
        bytes as f64 / self.records.len().max(1) as f64
    }

    /// Seconds to commit everything to a new file, so many objects at a time, as the server's writer does:
    /// through a cursor at the end, durable, with quick-repair.
    pub(crate) fn commit(&self, path: &Path, batches: &[usize]) -> Result<f64, redb::Error> {
        drop(std::fs::remove_file(path));
        let database = Builder::new().set_cache_size(CACHE_BYTES).create(path)?;
        let mut left: VecDeque<_> = self.records.iter().collect();
        let began = Instant::now();
        for (at, batch) in batches.iter().enumerate() {
            // The last commit has no pushed objects: what the server writes of its own accord, its views of
            // shards, goes with it.
            let take = if at + 1 == batches.len() { left.len() } else { (*batch).min(left.len()) };
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            transaction.set_quick_repair(true);
            let mut last = 0;
            {
                let mut revs = transaction.open_table(REVS)?;
                let mut end = revs.upper_bound_mut(Bound::<u64>::Unbounded)?;
                for (revision, record) in left.drain(..take) {
                    end.insert_before(*revision, record.as_slice())?;
                    last = *revision;
                }
                end.close()?;
                if let Some(ms) = self.times.get(&last) {
                    transaction.open_table(TIMES)?.insert(last, ms)?;
                }
                let mut table = transaction.open_table(CELLS)?;
                for (name, cell) in &self.cells {
                    table.insert(name.as_str(), cell.as_slice())?;
                }
            }
            transaction.commit()?;
        }
        assert!(left.is_empty(), "the batches are of all objects");
        Ok(began.elapsed().as_secs_f64())
    }
}

/// A failure of the peer, not of what is measured.
pub(crate) fn failed(error: &redb::Error) -> Refusal {
    Refusal::Impossible(format!("bare redb: {error}"))
}

/// The version that the workspace builds with.
pub(crate) fn version() -> String {
    let lock = include_str!("../../Cargo.lock");
    let after = lock.split("name = \"redb\"\nversion = \"").nth(1);
    after.and_then(|rest| rest.split('"').next()).unwrap_or("unknown").to_owned()
}
