//! The table of requests: what calls returned, one row for each session.
//!
//! ```text
//! key    home u32 | 1 | worker u32 | since u32 | incarnation u32 | serial u64     a session
//! value  number u64, little-endian | what the call with that number returned
//! ```
//! A transaction whose commit has a request id leaves such a row, too, with one byte: that it has committed (1), or that it never
//! will (0). The row of a call that any node may coordinate has the byte 2 before the result, since it may get a 0 as well.
//!
//! ```text
//! key    home u32 | 0 | worker u32                                                a mark
//! value  the last part, from `worker` on, of the last key whose row was dropped
//! ```
//! All numbers of keys are big-endian. So the sessions of a worker stand in the order in which they were granted, those of
//! earlier leaderships first, and a prefix of them is over; rows are dropped from its front, by the rules of
//! `execution/request_rows.rs`. Not derived: encoded keys have to sort as sessions do.

use shoal_cluster::topology::Partitioning;
use shoal_types::{CallSession, Error, Result, ShardId, WorkerId};

/// The table in which the outcomes of calls are kept.
pub const REQUESTS_TABLE: &str = "shoal.requests";

/// How [`REQUESTS_TABLE`] is partitioned: a row lives on the shard that its key begins with.
pub fn requests_table(shards: u32) -> (&'static str, Partitioning) {
    let splits = (0..shards).map(|shard| {
        let first = if shard == 0 { Box::default() } else { Box::from(shard.to_be_bytes()) };
        (first, ShardId(shard))
    });
    (REQUESTS_TABLE, Partitioning::Range { splits: splits.collect() })
}

/// What stands before the part of a key that names a session.
pub(crate) const PREFIX_BYTES: usize = 5;

/// The key of a session's row.
pub fn request_key(session: &CallSession) -> Vec<u8> {
    let CallSession { home, since, incarnation, worker, serial } = session;
    let mut key = key_prefix(*home, *worker);
    key.extend_from_slice(&since.0.to_be_bytes());
    key.extend_from_slice(&incarnation.to_be_bytes());
    key.extend_from_slice(&serial.to_be_bytes());
    key
}

/// What the keys of the sessions begin with that a worker has granted for a shard.
pub(crate) fn key_prefix(home: ShardId, worker: WorkerId) -> Vec<u8> {
    [&home.0.to_be_bytes()[..], &[1], &worker.0.to_be_bytes()].concat()
}

/// The key under which a worker keeps its mark for the calls of a home shard.
pub(crate) fn mark_key(home: ShardId, worker: WorkerId) -> Vec<u8> {
    [&home.0.to_be_bytes()[..], &[0], &worker.0.to_be_bytes()].concat()
}

/// Whether the row of a session may have been dropped, by the mark of its worker.
#[must_use]
pub fn is_dropped(key: &[u8], mark: &[u8]) -> bool {
    key[PREFIX_BYTES..] <= *mark
}

/// The row of a call that returned `result`.
pub fn request_row(number: u64, result: &[u8]) -> Vec<u8> {
    [&number.to_le_bytes()[..], result].concat()
}

/// What stands before the result in the row of a call that any node may have coordinated.
const RETURNED: u8 = 2;

/// The row of a call that returned `result`, and that any node may have coordinated.
pub fn returned_row(number: u64, result: &[u8]) -> Vec<u8> {
    request_row(number, &[&[RETURNED], result].concat())
}

/// The result in what the row of such a call holds; `None` for that of a commit.
pub fn returned(kept: &[u8]) -> Option<&[u8]> {
    kept.strip_prefix(&[RETURNED])
}

/// What the row of a commit holds: the transaction has committed.
pub const COMMITTED: &[u8] = &[1];

/// What the row of a commit holds that was asked for before it came: the transaction has not committed, and never will.
pub const NEVER_COMMITS: &[u8] = &[0];

/// What the row of a call holds to whose result several shards have contributed: it has committed, and its result is kept
/// in no row.
pub const SPLIT_RESULT: &[u8] = b"\xff\xffsplit: the result of this call is not kept in one row";

/// The call whose result a row has, and the result; `None` for a mark.
///
/// # Errors
/// Where it is neither.
pub fn read_request_row<'r>(key: &[u8], row: &'r [u8]) -> Result<Option<(u64, &'r [u8])>> {
    if key.get(PREFIX_BYTES - 1) == Some(&0) {
        return Ok(None);
    }
    let (number, result) = row.split_first_chunk::<8>().ok_or_else(corrupt)?;
    Ok(Some((u64::from_le_bytes(*number), result)))
}

fn corrupt() -> Error {
    Error::reject("a row of the table of requests is shorter than its number")
}
