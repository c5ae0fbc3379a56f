//! Rows of [`tables::CELLS`] and [`tables::TENURES`]: what is durable of pushing beside the objects. The
//! roster's go with them.

use std::sync::Arc;

use redb::{ReadTransaction, WriteTransaction};

use crate::error::StorageError;
use crate::key::{SEPARATOR, TypeName};
use crate::ledger::Touched;
use crate::push::{Cell, CellName, Digest, Election, PushedType, Tenure};
use crate::state::State;

use super::roster_rows;
use super::tables::{self, CELLS, TENURES, put_text, take_text, take_u64};

/// Bits of a cell's flags.
const CUT: u64 = 1;
const NAMESPACED: u64 = 2;
/// Bits of a tenure's flags.
const ELECTED: u64 = 1;
const CATALOGUED: u64 = 2;

/// Writes the rows that are touched, as the state has them.
pub(super) fn write(txn: &WriteTransaction, touched: &Touched, state: &State) -> Result<(), redb::Error> {
    if !touched.cells.is_empty() {
        let mut table = txn.open_table(CELLS)?;
        for name in &touched.cells {
            let cell = state.cell(name).expect("a touched cell exists");
            table.insert(cell_key(name).as_str(), encode_cell(cell).as_slice())?;
        }
    }
    if !touched.tenures.is_empty() {
        let mut table = txn.open_table(TENURES)?;
        for shard in &touched.tenures {
            let tenure = state.tenure(shard).expect("a touched tenure exists");
            table.insert(&**shard, encode_tenure(tenure).as_slice())?;
        }
    }
    roster_rows::write(txn, touched, state)
}

/// Reads all rows into a state, those of the roster too.
pub(super) fn read(txn: &ReadTransaction, state: &mut State) -> Result<(), StorageError> {
    let cells = tables::rows(txn, CELLS, |key, row| {
        let (shard, type_name) = key.split_once(SEPARATOR).ok_or_else(unreadable)?;
        let name = CellName::new(shard, tables::decode_type(type_name)?);
        Ok((name, decode_cell(row).ok_or_else(unreadable)?))
    })?;
    let tenures = tables::rows(txn, TENURES, |shard, row| {
        Ok((Box::from(shard), decode_tenure(row)?.ok_or_else(unreadable)?))
    })?;
    state.load_push(cells, tenures);
    roster_rows::read(txn, state)
}

fn unreadable() -> StorageError {
    StorageError::Corrupt("what is known of a pusher cannot be read".to_owned())
}

fn cell_key(name: &CellName) -> String {
    format!("{}\0{}", name.shard(), tables::encode_type(name.type_name()))
}

fn encode_cell(cell: &Cell) -> Vec<u8> {
    let mut row = Vec::with_capacity(128);
    let flags = u64::from(cell.cut) * CUT + u64::from(cell.described.namespaced) * NAMESPACED;
    let numbers = [flags, cell.generation, cell.position, cell.synced_generation, cell.synced_ms, cell.count];
    for number in numbers {
        row.extend_from_slice(&number.to_le_bytes());
    }
    row.extend_from_slice(&cell.digest.0.to_le_bytes());
    put_text(&mut row, &cell.source);
    put_text(&mut row, &cell.described.version);
    put_text(&mut row, &cell.described.kind);
    row
}

fn decode_cell(mut row: &[u8]) -> Option<Cell> {
    let row = &mut row;
    let flags = take_u64(row)?;
    let (generation, position) = (take_u64(row)?, take_u64(row)?);
    let (synced_generation, synced_ms, count) = (take_u64(row)?, take_u64(row)?, take_u64(row)?);
    let (low, high) = (take_u64(row)?, take_u64(row)?);
    let source = take_text(row)?.into();
    let (version, kind) = (take_text(row)?.into(), take_text(row)?.into());
    Some(Cell {
        generation,
        position,
        cut: flags & CUT != 0,
        synced_generation,
        synced_ms,
        count,
        digest: Digest(u128::from(high) << 64 | u128::from(low)),
        source,
        described: PushedType { version, kind, namespaced: flags & NAMESPACED != 0 },
    })
}

fn encode_tenure(tenure: &Tenure) -> Vec<u8> {
    let mut row = Vec::with_capacity(128);
    let flags =
        u64::from(tenure.election.is_some()) * ELECTED + u64::from(tenure.catalog.is_some()) * CATALOGUED;
    row.extend_from_slice(&flags.to_le_bytes());
    row.extend_from_slice(&tenure.term.to_le_bytes());
    put_text(&mut row, &tenure.holder);
    put_text(&mut row, &tenure.instance);
    if let Some(election) = &tenure.election {
        put_text(&mut row, &election.uid);
        row.extend_from_slice(&election.term.to_le_bytes());
    }
    if let Some(catalog) = &tenure.catalog {
        put_types(&mut row, catalog);
    }
    row
}

/// Number of types, and each as a row of [`tables::TYPES`] has it.
pub(super) fn put_types(row: &mut Vec<u8>, types: &[TypeName]) {
    row.extend_from_slice(&(types.len() as u64).to_le_bytes());
    for type_name in types {
        put_text(row, &tables::encode_type(type_name));
    }
}

pub(super) fn take_types(row: &mut &[u8]) -> Result<Option<Arc<[TypeName]>>, StorageError> {
    let Some(len) = take_u64(row) else { return Ok(None) };
    let mut types = Vec::new();
    for _ in 0..len {
        let Some(text) = take_text(row) else { return Ok(None) };
        types.push(tables::decode_type(&text)?);
    }
    Ok(Some(types.into()))
}

fn decode_tenure(mut row: &[u8]) -> Result<Option<Tenure>, StorageError> {
    let row = &mut row;
    let fixed = || -> Option<(u64, Tenure)> {
        let (flags, term) = (take_u64(row)?, take_u64(row)?);
        let (holder, instance) = (take_text(row)?.into(), take_text(row)?.into());
        let election = match flags & ELECTED {
            0 => None,
            _ => Some(Election { uid: take_text(row)?.into(), term: take_u64(row)? }),
        };
        Some((flags, Tenure { term, holder, instance, election, catalog: None }))
    }();
    let Some((flags, mut tenure)) = fixed else { return Ok(None) };
    if flags & CATALOGUED != 0 {
        let Some(catalog) = take_types(row)? else { return Ok(None) };
        tenure.catalog = Some(catalog);
    }
    Ok(Some(tenure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_the_round_trip_and_cut_rows_are_refused() {
        let cell = Cell {
            generation: 1,
            position: 2,
            cut: true,
            synced_generation: 3,
            synced_ms: 4,
            count: 5,
            digest: Digest(7 << 64 | 6),
            source: "prod".into(),
            described: PushedType { version: "v1".into(), kind: "Cowboy".into(), namespaced: true },
        };
        let row = encode_cell(&cell);
        assert_eq!(decode_cell(&row), Some(cell));
        let catalog = [TypeName::new("a", "b"), TypeName::with_identity("c", "d", "e")];
        let tenure = Tenure {
            term: 1,
            holder: "replicator-0".into(),
            instance: "i".into(),
            election: Some(Election { uid: "u".into(), term: 2 }),
            catalog: Some(catalog.into()),
        };
        let tenure_row = encode_tenure(&tenure);
        assert_eq!(decode_tenure(&tenure_row).ok().flatten(), Some(tenure));
        assert_eq!(decode_tenure(&encode_tenure(&Tenure::default())).ok().flatten(), Some(Tenure::default()));
        for len in 0..row.len() {
            assert_eq!(decode_cell(&row[..len]), None, "cut at {len}");
        }
        for len in 0..tenure_row.len() {
            assert!(!matches!(decode_tenure(&tenure_row[..len]), Ok(Some(_))), "cut at {len}");
        }
    }
}
