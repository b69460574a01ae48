//! The procedures that every node knows by name.

use bytes::Bytes;
use shoal_types::{Error, ProcedureTransaction, Procedures, Result, TableId, Transaction as _};

/// Adds to a counter: see [`add`].
pub const ADD: &str = "shoal.add";

/// All of them: also the workloads', for benches that call.
pub fn known() -> Procedures {
    shoal_workloads::procedures::register(Procedures::new().with(ADD, add))
}

/// What [`ADD`] is called with.
pub fn add_arguments(table: TableId, delta: i64, key: &[u8]) -> Bytes {
    [&table.0.to_le_bytes()[..], &delta.to_le_bytes(), key].concat().into()
}

/// Adds to the number under a key, and returns the sum, both as eight little-endian bytes.
async fn add(tx: &ProcedureTransaction<'_>, arguments: &[u8]) -> Result<Bytes> {
    let wrong = || Error::reject("a table, a number and a key are expected");
    let (table, rest) = arguments.split_first_chunk::<4>().ok_or_else(wrong)?;
    let (delta, key) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
    let sum = tx.add(TableId(u32::from_le_bytes(*table)), key, i64::from_le_bytes(*delta)).await?;
    Ok(Bytes::copy_from_slice(&sum.to_le_bytes()))
}
