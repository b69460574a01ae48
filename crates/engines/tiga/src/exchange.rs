//! What participants send each other of their rows before a transaction is executed: of a procedure of shape `Whole`, all that it
//! reads there; of a certificate, whether it still holds.
//!
//! It leaves a leader only once the versions that it rests on are decided, and after the leader's conflict tables are set (rule T18).

use crate::part_reads::{PartReads, RangeReads};
use crate::rows::Rows;
use crate::transaction::{Body, KeyAccess, Part, Work};
use bytes::Bytes;
use shoal_types::procedure::{Access, successor};
use shoal_types::{Aborted, Conflict, KeyExcerpt, Result};

/// What one participant sends to another may have so many bytes. What reads more is run at its coordinator and certified.
const EXCHANGED_BYTES_MAX: usize = 64 << 10;

/// What this shard has to say of a transaction before that is executed. `None` while it rests on rows that are not decided.
///
/// # Errors
/// What a certificate says has changed, or what is read is too much for a message.
#[must_use]
pub fn contribution(
    work: &Work,
    rows: &Rows,
    ignores_undecided: bool,
) -> Option<Result<PartReads>> {
    let (part, body) = (work.part(), &work.transaction.body);
    let may_leave = || ignores_undecided || is_decided(part, rows);
    match body {
        Body::Pieces { .. } => Some(Ok(PartReads::default())),
        Body::Whole { .. } => may_leave().then(|| reads_of(part, rows)),
        Body::Certify => may_leave().then(|| verdict(part, rows).map(|()| PartReads::default())),
    }
}

/// Whether all that a part reads is decided.
fn is_decided(part: &Part, rows: &Rows) -> bool {
    part.reads.iter().all(|key| rows.is_decided(key.table, &key.key))
        && part
            .ranges
            .iter()
            .all(|range| rows.is_range_decided(range.table, range.granule.as_deref()))
}

/// What a procedure reads on this shard.
fn reads_of(part: &Part, rows: &Rows) -> Result<PartReads> {
    let value = |key: &KeyAccess| rows.get(key.table, &key.key).and_then(|row| row.value.clone());
    let values: Vec<Option<Bytes>> = part.reads.iter().map(value).collect();
    let mut bytes: usize = values.iter().flatten().map(Bytes::len).sum();
    if let Some(KeyAccess { table, key, .. }) = part.reads.first().filter(|_| is_too_much(bytes)) {
        let (table, key) = (*table, KeyExcerpt::new(key));
        return Err(Aborted::from(Conflict::ReadChanged { table, key }).into());
    }
    let mut ranges = Vec::with_capacity(part.declared_ranges.len());
    for range in &part.declared_ranges {
        let (mut from, mut found) = (range.start.clone(), Vec::new());
        match range.access {
            Access::Write => {}
            Access::ReadWrite => {
                let last = rows.scan(range, true).next();
                from = last.map_or(from, |(last, _)| successor(last));
            }
            Access::Read => {
                for (key, value) in rows.scan(range, false) {
                    bytes += key.len() + value.len();
                    if is_too_much(bytes) {
                        let table = range.table;
                        return Err(Aborted::from(Conflict::RangeChanged { table }).into());
                    }
                    found.push((key.clone(), value.clone()));
                }
            }
        }
        ranges.push(RangeReads { from, rows: found });
    }
    Ok(PartReads { values, ranges })
}

fn is_too_much(bytes: usize) -> bool {
    bytes > EXCHANGED_BYTES_MAX
}

/// Whether what a certificate says of this shard is so.
///
/// # Errors
/// What has changed since it was read.
fn verdict(part: &Part, rows: &Rows) -> Result<()> {
    for (key, version) in part.reads.iter().zip(&part.certificate.versions) {
        let found = rows.get(key.table, &key.key).map_or(0, |row| row.version);
        if found != *version {
            let (table, key) = (key.table, KeyExcerpt::new(&key.key));
            return Err(Aborted::from(Conflict::ReadChanged { table, key }).into());
        }
    }
    let ranges = part.ranges.iter().filter(|range| range.reads);
    for (range, version) in ranges.zip(&part.certificate.ranges) {
        if rows.range_version(range.table, range.granule.as_deref()) != *version {
            let table = range.table;
            return Err(Aborted::from(Conflict::RangeChanged { table }).into());
        }
    }
    Ok(())
}
