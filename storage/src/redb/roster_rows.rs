//! Rows of [`tables::ROSTER`]: which shards ought to exist, and what is awaited of them.

use redb::{ReadTransaction, WriteTransaction};

use crate::error::StorageError;
use crate::ledger::Touched;
use crate::roster::{Awaited, Member, Role};
use crate::state::State;

use super::push_rows::{put_types, take_types};
use super::tables::{self, ROSTER, take_u64};

/// Bit of a member's flags.
const CATALOGUED: u64 = 1;

/// Writes the rows that are touched, as the state has them; removes those of shards that it does not have.
pub(super) fn write(txn: &WriteTransaction, touched: &Touched, state: &State) -> Result<(), redb::Error> {
    if !touched.members.is_empty() {
        let mut table = txn.open_table(ROSTER)?;
        for shard in &touched.members {
            match state.member(shard) {
                Some(member) => table.insert(&**shard, encode(member).as_slice())?,
                None => table.remove(&**shard)?,
            };
        }
    }
    if touched.seeded {
        tables::write_seeded(txn)?;
    }
    Ok(())
}

/// Reads all rows into a state.
pub(super) fn read(txn: &ReadTransaction, state: &mut State) -> Result<(), StorageError> {
    let members = tables::rows(txn, ROSTER, |shard, row| {
        let member = decode(row)?.ok_or_else(|| {
            StorageError::Corrupt(format!("the place of shard {shard} in the roster cannot be read"))
        })?;
        Ok((Box::from(shard), member))
    })?;
    state.load_roster(members, tables::is_seeded(txn)?);
    Ok(())
}

fn encode(member: &Member) -> Vec<u8> {
    let mut row = Vec::with_capacity(64);
    let role: u64 = match member.role {
        Role::Expected => 1,
        Role::Joining => 2,
        Role::Excused => 3,
    };
    let flags = if member.awaits == Awaited::Catalog { 0 } else { CATALOGUED };
    row.extend_from_slice(&flags.to_le_bytes());
    row.extend_from_slice(&role.to_le_bytes());
    if let Awaited::Types(types) = &member.awaits {
        put_types(&mut row, types);
    }
    row
}

fn decode(mut row: &[u8]) -> Result<Option<Member>, StorageError> {
    let row = &mut row;
    let (Some(flags), Some(role)) = (take_u64(row), take_u64(row)) else { return Ok(None) };
    let role = match role {
        1 => Role::Expected,
        2 => Role::Joining,
        3 => Role::Excused,
        _ => return Ok(None),
    };
    let awaits = match flags & CATALOGUED {
        0 => Awaited::Catalog,
        _ => match take_types(row)? {
            Some(types) => Awaited::Types(types),
            None => return Ok(None),
        },
    };
    Ok(Some(Member { role, awaits }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::TypeName;

    #[test]
    fn rows_survive_the_round_trip_and_cut_or_foreign_rows_are_refused() {
        let types = [TypeName::new("a", "b"), TypeName::with_identity("c", "d", "e")];
        for role in [Role::Expected, Role::Joining, Role::Excused] {
            for awaits in [Awaited::Catalog, Awaited::Types([].into()), Awaited::Types(types.clone().into())]
            {
                let member = Member { role, awaits };
                let row = encode(&member);
                assert_eq!(decode(&row).ok().flatten(), Some(member));
                for len in 0..row.len() {
                    assert!(!matches!(decode(&row[..len]), Ok(Some(_))), "cut at {len}");
                }
                let mut later = row;
                later[8] = 9;
                assert!(!matches!(decode(&later), Ok(Some(_))), "a role of a later version");
            }
        }
    }
}
