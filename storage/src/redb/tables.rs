//! The on-disk format: table names, keys, values and their encodings. Nothing else names a table.
//!
//! Everything is little endian; `docs/format.md` describes it byte by byte. There is no table from
//! key to revision: that index is the state in memory, rebuilt from `revs` at each opening.

use redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition, TableError, WriteTransaction,
};

use crate::error::StorageError;
use crate::key::{SEPARATOR, TypeName};
use crate::lineage::Incarnation;
use crate::resource_version::{Revision, Tag};

/// The newest format this program reads and the one it writes.
pub(crate) const FORMAT: u32 = 3;

/// Revision → record; appended to, never overwritten.
pub(crate) const REVS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revs");
/// Type id → `group\0resource\0identity`.
pub(crate) const TYPES: TableDefinition<'_, u32, &str> = TableDefinition::new("types");
/// Type id → the newest event that was forgotten.
pub(crate) const FLOORS: TableDefinition<'_, u32, u64> = TableDefinition::new("floors");
/// Index, rising by one per opening → incarnation.
pub(crate) const INCS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("incs");
/// Name → value.
pub(crate) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// Revision → milliseconds since 1970 at or before which every event up to it had happened.
pub(crate) const TIMES: TableDefinition<'_, u64, u64> = TableDefinition::new("times");

/// `shard\0group\0resource\0identity` → how far the cell has come.
pub(crate) const CELLS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("cells");
/// Shard → who writes for it.
pub(crate) const TENURES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("tenures");
/// Shard → its place in the roster.
pub(crate) const ROSTER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("roster");

const META_FORMAT: &str = "format";
const META_STORE: &str = "store";
const META_PROBE: &str = "probe";
const META_SEEDED: &str = "seeded";

/// What `meta` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Identity of the store.
    pub(crate) store: uuid::Uuid,
}

impl Meta {
    /// Reads and checks `meta`; `None` if the file has no such table, so it is not a store.
    pub(crate) fn read(txn: &ReadTransaction) -> Result<Option<Self>, StorageError> {
        let Some(table) = optional(txn, META)? else { return Ok(None) };
        let Some(format) = table.get(META_FORMAT).map_err(damaged)? else { return Ok(None) };
        let found = match format.value().first_chunk() {
            Some(bytes) => u32::from_le_bytes(*bytes),
            None => return Err(StorageError::Corrupt("the format version is cut short".to_owned())),
        };
        if found > FORMAT {
            return Err(StorageError::NewerFormat { found, supported: FORMAT });
        }
        let store = table.get(META_STORE).map_err(damaged)?;
        let store = store
            .and_then(|bytes| uuid::Uuid::from_slice(bytes.value()).ok())
            .ok_or_else(|| StorageError::Corrupt("the store's identity is missing".to_owned()))?;
        Ok(Some(Self { store }))
    }

    /// Writes `meta` in the current format.
    pub(crate) fn write(self, txn: &WriteTransaction) -> Result<(), redb::Error> {
        let mut table = txn.open_table(META)?;
        table.insert(META_FORMAT, FORMAT.to_le_bytes().as_slice())?;
        table.insert(META_STORE, self.store.as_bytes().as_slice())?;
        Ok(())
    }
}

/// Overwrites a value that nobody reads, so that a commit has something to write.
pub(crate) fn write_probe(txn: &WriteTransaction, value: u64) -> Result<(), redb::Error> {
    txn.open_table(META)?.insert(META_PROBE, value.to_le_bytes().as_slice())?;
    Ok(())
}

/// Notes that the roster was seeded.
pub(crate) fn write_seeded(txn: &WriteTransaction) -> Result<(), redb::Error> {
    txn.open_table(META)?.insert(META_SEEDED, [1].as_slice())?;
    Ok(())
}

/// Whether the roster was seeded.
pub(crate) fn is_seeded(txn: &ReadTransaction) -> Result<bool, StorageError> {
    let Some(table) = optional(txn, META)? else { return Ok(false) };
    Ok(table.get(META_SEEDED).map_err(damaged)?.is_some())
}

/// A table, or `None` if nothing was ever written to it.
pub(crate) fn optional<K: redb::Key, V: redb::Value>(
    txn: &ReadTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, StorageError> {
    match txn.open_table(table) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(damaged(error)),
    }
}

/// All rows of a table, read with `row`; none if the table does not exist.
pub(crate) fn rows<K: redb::Key, V: redb::Value, T>(
    txn: &ReadTransaction,
    table: TableDefinition<'_, K, V>,
    mut row: impl FnMut(K::SelfType<'_>, V::SelfType<'_>) -> Result<T, StorageError>,
) -> Result<Vec<T>, StorageError> {
    let Some(table) = optional(txn, table)? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for entry in table.iter().map_err(damaged)? {
        let (key, value) = entry.map_err(damaged)?;
        all.push(row(key.value(), value.value())?);
    }
    Ok(all)
}

/// Creates every table that is not there, so that readers need not care which were written to.
pub(crate) fn create(txn: &WriteTransaction) -> Result<(), redb::Error> {
    txn.open_table(REVS)?;
    txn.open_table(TYPES)?;
    txn.open_table(FLOORS)?;
    txn.open_table(INCS)?;
    txn.open_table(META)?;
    txn.open_table(TIMES)?;
    txn.open_table(CELLS)?;
    txn.open_table(TENURES)?;
    txn.open_table(ROSTER)?;
    Ok(())
}

/// The value of a row of [`TYPES`].
pub(crate) fn encode_type(name: &TypeName) -> String {
    format!("{}\0{}\0{}", name.group(), name.resource(), name.identity())
}

/// Reads a row of [`TYPES`].
pub(crate) fn decode_type(value: &str) -> Result<TypeName, StorageError> {
    let mut parts = value.split(SEPARATOR);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(group), Some(resource), Some(identity), None) => {
            Ok(TypeName::with_identity(group, resource, identity))
        }
        _ => Err(StorageError::Corrupt(format!("type {value:?} does not have three parts"))),
    }
}

/// The value of a row of [`INCS`].
pub(crate) fn encode_incarnation(incarnation: &Incarnation) -> Vec<u8> {
    let mut row = Vec::with_capacity(64);
    row.extend_from_slice(&incarnation.start.0.to_le_bytes());
    row.extend_from_slice(&incarnation.end.unwrap_or(Revision::ZERO).0.to_le_bytes());
    row.extend_from_slice(&incarnation.opened_ms.to_le_bytes());
    row.extend_from_slice(&incarnation.tag.value().to_le_bytes());
    put_text(&mut row, &incarnation.host);
    put_text(&mut row, &incarnation.program);
    row
}

/// Length and bytes; at most 65535 of them.
pub(super) fn put_text(row: &mut Vec<u8>, text: &str) {
    let text = &text.as_bytes()[..text.len().min(u16::MAX.into())];
    row.extend_from_slice(&(text.len() as u16).to_le_bytes());
    row.extend_from_slice(text);
}

/// Reads a row of [`INCS`].
pub(crate) fn decode_incarnation(mut row: &[u8]) -> Result<Incarnation, StorageError> {
    let bad = || StorageError::Corrupt("an incarnation cannot be read".to_owned());
    let (start, end) = (take_u64(&mut row).ok_or_else(bad)?, take_u64(&mut row).ok_or_else(bad)?);
    let opened_ms = take_u64(&mut row).ok_or_else(bad)?;
    let tag = take_u16(&mut row).and_then(Tag::new).ok_or_else(bad)?;
    let (host, program) = (take_text(&mut row).ok_or_else(bad)?, take_text(&mut row).ok_or_else(bad)?);
    let end = (end != 0).then_some(Revision(end));
    Ok(Incarnation { start: Revision(start), tag, end, opened_ms, host, program })
}

pub(super) fn take_u64(row: &mut &[u8]) -> Option<u64> {
    let (bytes, rest) = row.split_first_chunk()?;
    *row = rest;
    Some(u64::from_le_bytes(*bytes))
}

fn take_u16(row: &mut &[u8]) -> Option<u16> {
    let (bytes, rest) = row.split_first_chunk()?;
    *row = rest;
    Some(u16::from_le_bytes(*bytes))
}

pub(super) fn take_text(row: &mut &[u8]) -> Option<String> {
    let len = take_u16(row)?;
    let (text, rest) = row.split_at_checked(len.into())?;
    *row = rest;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Removes the rows of a table whose keys are given.
pub(crate) fn remove_all<V: redb::Value>(
    table: &mut Table<'_, u64, V>,
    keys: impl IntoIterator<Item = u64>,
) -> Result<usize, redb::StorageError> {
    let mut removed = 0;
    for key in keys {
        removed += usize::from(table.remove(key)?.is_some());
    }
    Ok(removed)
}

/// A failed read of a file that redb opened: what is there cannot be read.
pub(crate) fn damaged(error: impl Into<redb::Error>) -> StorageError {
    StorageError::Corrupt(error.into().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_the_round_trip_and_cut_rows_are_refused() {
        let incarnation = Incarnation {
            start: Revision(7),
            tag: Tag::new(1023).expect("legal"),
            end: Some(Revision(9)),
            opened_ms: 11,
            host: "höst".to_owned(),
            program: "0.1.0".to_owned(),
        };
        let row = encode_incarnation(&incarnation);
        assert_eq!(decode_incarnation(&row).ok(), Some(incarnation));
        for len in 0..row.len() {
            assert!(decode_incarnation(&row[..len]).is_err(), "cut at {len}");
        }
        let name = TypeName::with_identity("apis.kcp.io", "apiexports", "abc");
        assert_eq!(decode_type(&encode_type(&name)).ok(), Some(name));
        assert!(decode_type("a\0b").is_err() && decode_type("a\0b\0c\0d").is_err());
    }
}
