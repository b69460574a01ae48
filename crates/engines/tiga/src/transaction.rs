//! A transaction as the protocol knows it: what it touches on each shard, what it does there, and when.
//!
//! A transaction names the ballots under which its coordinator knows the participants. A leader accepts it under that ballot
//! and no other, so once a participant has recovered, what it did not keep of an earlier ballot can never be released.

use crate::digest::{
    Digest, Digester, Resource, granule_resource, key_resource, range_resource, table_resource,
};
use crate::locks::{Lock, Mode, joined};
use crate::stamp::Stamp;
use bytes::Bytes;
use shoal_cluster::topology::{Home, TableMap};
use shoal_engine::TransactionId;
use shoal_types::limits::TRANSACTION_MESSAGE_BYTES_MAX;
use shoal_types::procedure::{Access, FootprintRange};
use shoal_types::wire::Coded;
use shoal_types::{Ballot, Rejected, Result, ShardId, TableId, Time};
use std::sync::Arc;

/// The bytes that a row has in a message beside its key and its value, at most.
pub(crate) const ROW_BYTES: usize = 16;

/// The bytes that a record, a transaction, a part of it, and a range have in a message beside what is counted, at most.
pub(crate) const FIXED_BYTES: usize = 64;

/// The bytes of a [`Predecessor`] in a message, at most.
pub(crate) const PREDECESSOR_BYTES: usize = 32;

/// The bytes of a value in a message, at most.
pub(crate) fn value_bytes(value: &Option<Bytes>) -> usize {
    ROW_BYTES + value.as_ref().map_or(0, Bytes::len)
}

/// A key that is read or written.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct KeyAccess {
    /// The table of the key.
    #[coded(short)]
    pub table: TableId,
    /// The key that is accessed.
    pub key: Bytes,
    /// How many of its first bytes name its granule; 0 where the table has no granules.
    pub granule_bytes: u16,
}

/// A range of a table's rows on a shard.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct RangeAccess {
    /// The table of the range.
    #[coded(short)]
    pub table: TableId,
    /// The granule that holds it; `None`: the whole table is locked.
    pub granule: Option<Bytes>,
    /// Rows of it are read.
    pub reads: bool,
    /// Rows of it are written.
    pub writes: bool,
}

/// What `certify` compares and installs on a shard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Coded)]
pub struct Certificate {
    /// The versions that were read, of the keys that are read, in their order.
    pub versions: Vec<u64>,
    /// The versions of the ranges that were scanned, in their order.
    pub ranges: Vec<u64>,
    /// The new values of the keys that are written, in their order; `None` deletes.
    pub values: Vec<Option<Bytes>>,
}

/// What a transaction has to do with one shard.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Part {
    /// The participant.
    #[coded(short)]
    pub shard: ShardId,
    /// The ballot of its leader, as the coordinator knows it.
    pub ballot: Ballot,
    /// Keys that are read, whether they are present or not.
    pub reads: Vec<KeyAccess>,
    /// Keys that are written, inserted or deleted.
    pub writes: Vec<KeyAccess>,
    /// Ranges that are read or written, as they are locked.
    pub ranges: Vec<RangeAccess>,
    /// The same of a procedure, as they are declared; empty for certificates.
    pub declared_ranges: Vec<FootprintRange>,
    /// What it certifies there; empty for procedures.
    pub certificate: Certificate,
}

/// The row of a call, which its home shard writes together with the result.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct RequestRow {
    /// The home shard.
    #[coded(short)]
    pub home: ShardId,
    /// The table of requests.
    #[coded(short)]
    pub table: TableId,
    /// The key of the call's session.
    pub key: Bytes,
    /// The number of the call in its session.
    pub number: u64,
    /// The key of the mark up to which rows were dropped, where the rows decide whether the call may take effect.
    pub mark: Option<Bytes>,
}

/// A table that a procedure touches.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct NamedTable {
    /// The name by which the procedure asks for it.
    pub name: Box<str>,
    /// The table that had this name at the coordinator.
    #[coded(short)]
    pub table: TableId,
}

/// The procedure that is executed, and where its result is left.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct ProcedureCall {
    /// The name under which it is registered.
    pub procedure: Box<str>,
    /// What it is called with.
    pub arguments: Bytes,
    /// The tables that it declares. Leaders may know of others while tables are created and dropped, and have to execute alike.
    pub tables: Vec<NamedTable>,
    /// Where the call leaves its result, if it has an id.
    pub request: Option<RequestRow>,
}

impl ProcedureCall {
    /// Its bytes in a message, at most.
    fn bytes(&self) -> usize {
        let named = self.tables.iter().map(|named| named.name.len() + ROW_BYTES).sum::<usize>();
        let mark = |row: &RequestRow| row.mark.as_ref().map_or(0, Bytes::len);
        let request =
            self.request.as_ref().map_or(0, |row| FIXED_BYTES + row.key.len() + mark(row));
        self.procedure.len() + self.arguments.len() + named + request
    }
}

/// What a transaction does.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub enum Body {
    /// A procedure runs on each participant, on the rows of that shard alone.
    #[coded(tag = 0)]
    Pieces {
        /// What is called.
        call: ProcedureCall,
    },
    /// All participants install their writes, if what was read on all of them is still so; else none.
    #[coded(tag = 1)]
    Certify,
    /// A procedure runs on each participant, alike: on what it reads on all of them, which they send each other.
    #[coded(tag = 2)]
    Whole {
        /// What is called.
        call: ProcedureCall,
    },
}

/// A transaction, the same at every participant.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Transaction {
    /// The name, which has the coordinator's place.
    pub id: TransactionId,
    /// Older ones of its coordinator are over: nothing is said of them any more.
    #[coded(short)]
    pub oldest: u64,
    /// Its coordinator waits for the logs alone: only leaders receive it, and nothing is voted for.
    pub by_log: bool,
    /// What it does.
    pub body: Body,
    /// What it touches, in the order of the shards.
    pub parts: Vec<Part>,
}

impl Transaction {
    /// Whether several shards take part.
    #[must_use]
    pub fn is_multi(&self) -> bool {
        self.parts.len() > 1
    }

    /// Whether its participants have to know of each other what it reads there, or whether that is as it was.
    #[must_use]
    pub fn exchanges(&self) -> bool {
        self.is_multi() && !matches!(self.body, Body::Pieces { .. })
    }

    /// Checks that it is no longer than one may be.
    ///
    /// # Errors
    /// [`Rejected::TransactionBytes`] if it is.
    pub fn check_bytes(&self) -> Result<()> {
        check_bytes(self.bytes())
    }

    /// Its bytes in a message, at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let of_call = match &self.body {
            Body::Pieces { call } | Body::Whole { call } => call.bytes(),
            Body::Certify => 0,
        };
        FIXED_BYTES + of_call + self.parts.iter().map(Part::bytes).sum::<usize>()
    }

    /// The place among those of a shard, if that takes part.
    #[must_use]
    pub fn place(&self, shard: ShardId) -> Option<usize> {
        self.parts.iter().position(|part| part.shard == shard)
    }

    /// The ballots that it names, in the order of its parts.
    #[must_use]
    pub fn ballots(&self) -> Vec<Ballot> {
        self.parts.iter().map(|part| part.ballot).collect()
    }

    /// Whether it is what a coordinator sends: parts in order and not without one, certificates that fit.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let in_order = self.parts.windows(2).all(|pair| pair[0].shard < pair[1].shard);
        let fits = |part: &Part| {
            let Certificate { versions, ranges, values } = &part.certificate;
            match self.body {
                Body::Certify => {
                    let read = part.ranges.iter().filter(|range| range.reads).count();
                    (versions.len(), ranges.len(), values.len())
                        == (part.reads.len(), read, part.writes.len())
                }
                Body::Pieces { .. } | Body::Whole { .. } => {
                    part.certificate == Certificate::default()
                }
            }
        };
        !self.parts.is_empty() && in_order && self.parts.iter().all(fits)
    }
}

/// Checks that a transaction of so many bytes is no longer than one may be: messages and entries have it whole.
pub(crate) fn check_bytes(bytes: usize) -> Result<()> {
    let max = TRANSACTION_MESSAGE_BYTES_MAX;
    if bytes > max {
        return Err(Rejected::TransactionBytes { bytes, max }.into());
    }
    Ok(())
}

impl Part {
    /// A part that touches nothing yet.
    #[must_use]
    pub fn new(shard: ShardId, ballot: Ballot) -> Part {
        Part {
            shard,
            ballot,
            reads: Vec::new(),
            writes: Vec::new(),
            ranges: Vec::new(),
            declared_ranges: Vec::new(),
            certificate: Certificate::default(),
        }
    }

    /// Its bytes in a message, at most.
    fn bytes(&self) -> usize {
        let of_key = |access: &KeyAccess| access.key.len() + 2 * ROW_BYTES;
        let keys = self.reads.iter().chain(&self.writes).map(of_key).sum::<usize>();
        let values = self.certificate.values.iter().flatten().map(Bytes::len).sum::<usize>();
        let granule = |range: &RangeAccess| range.granule.as_ref().map_or(0, Bytes::len);
        let ranges = self.ranges.iter().map(|range| FIXED_BYTES + granule(range)).sum::<usize>();
        let declared = self.declared_ranges.iter();
        let end = |range: &FootprintRange| range.end.as_ref().map_or(0, Bytes::len);
        let declared = declared.map(|range| FIXED_BYTES + range.start.len() + end(range));
        FIXED_BYTES + keys + values + ranges + declared.sum::<usize>()
    }

    /// All that it locks.
    #[must_use]
    pub fn locks(&self) -> Vec<Lock> {
        let mut locks = Vec::with_capacity(3 * (self.reads.len() + self.writes.len()));
        for key in &self.reads {
            key.lock(Mode::Read, Mode::IntendRead, &mut locks);
        }
        for key in &self.writes {
            key.lock(Mode::Write, Mode::IntendWrite, &mut locks);
        }
        for range in &self.ranges {
            let (mode, intention) = match range.writes {
                true => (Mode::Write, Mode::IntendWrite),
                false => (Mode::Read, Mode::IntendRead),
            };
            locks.push(Lock { resource: range.resource(), mode });
            if range.granule.is_some() {
                let resource = table_resource(range.table);
                locks.push(Lock { resource, mode: intention });
            }
        }
        joined(locks)
    }

    /// The places of the keys that are written and not read.
    fn blind_writes(&self) -> Vec<u32> {
        missing_from(&self.reads, &self.writes).map(|(place, _)| place).collect()
    }

    /// The keys that are read and not written.
    pub fn only_read(&self) -> impl Iterator<Item = &KeyAccess> {
        missing_from(&self.writes, &self.reads).map(|(_, key)| key)
    }

    /// Whether it writes ranges.
    #[must_use]
    pub fn writes_ranges(&self) -> bool {
        self.ranges.iter().any(|range| range.writes)
    }

    /// Whether the key may be read on this shard.
    #[must_use]
    pub fn allows_read(&self, tables: &TableMap, table: TableId, key: &[u8]) -> bool {
        let is_key = |access: &KeyAccess| access.table == table && access.key == key;
        self.reads.iter().any(is_key) || self.is_in_range(tables, table, key, Access::reads)
    }

    /// Whether the key may be written on this shard.
    #[must_use]
    pub fn allows_write(&self, tables: &TableMap, table: TableId, key: &[u8]) -> bool {
        let is_key = |access: &KeyAccess| access.table == table && access.key == key;
        self.writes.iter().any(is_key) || self.is_in_range(tables, table, key, Access::writes)
    }

    /// Whether the key is in a range that is declared so and is at home on this shard: rows of one range are on several shards.
    fn is_in_range(
        &self,
        tables: &TableMap,
        table: TableId,
        key: &[u8],
        access: fn(Access) -> bool,
    ) -> bool {
        let mut ranges = self.declared_ranges.iter();
        ranges.any(|range| access(range.access) && range.contains(table, key))
            && !matches!(tables.home(table, key), Some(Home::One(other)) if other != self.shard)
    }
}

/// Those of `keys` that are not among the others, with their places. Keys that are both stand in the same order mostly.
fn missing_from<'k>(
    others: &'k [KeyAccess],
    keys: &'k [KeyAccess],
) -> impl Iterator<Item = (u32, &'k KeyAccess)> {
    let mut next = 0;
    (0..).zip(keys).filter(move |(_, key)| {
        let (before, behind) = others.split_at(next);
        let found = behind.iter().chain(before).position(|other| other == *key);
        if let Some(found) = found {
            next = (next + found + 1) % others.len();
        }
        found.is_none()
    })
}

impl RangeAccess {
    /// What is locked, and whose version is compared: the granule, or the whole table.
    #[must_use]
    pub fn resource(&self) -> Resource {
        range_resource(self.table, self.granule.as_deref())
    }
}

/// How many bytes of a table's keys name a granule; 0 where it has none, or where each key would be one.
#[must_use]
pub fn granule_bytes(tables: &TableMap, table: TableId) -> u16 {
    let granules = tables.get(table).map(|table| table.granules());
    granules.map_or(0, |granules| u16::try_from(granules.granule_bytes).unwrap_or(0))
}

impl KeyAccess {
    /// A key with the granule that its table gives it.
    #[must_use]
    pub fn new(tables: &TableMap, table: TableId, key: &Bytes) -> KeyAccess {
        KeyAccess { table, key: key.clone(), granule_bytes: granule_bytes(tables, table) }
    }

    /// The first bytes of the key, which name its granule; `None` where it is in none.
    #[must_use]
    pub fn granule(&self) -> Option<&[u8]> {
        match self.granule_bytes {
            0 => None,
            bytes => self.key.get(..bytes.into()),
        }
    }

    /// What the key is in: its granule, if it is in one, and its table.
    pub fn around(&self) -> impl Iterator<Item = Resource> + use<> {
        let granule = self.granule().map(|prefix| granule_resource(self.table, prefix));
        granule.into_iter().chain([table_resource(self.table)])
    }

    fn lock(&self, mode: Mode, intention: Mode, locks: &mut Vec<Lock>) {
        locks.push(Lock { resource: key_resource(self.table, &self.key), mode });
        locks.extend(self.around().map(|resource| Lock { resource, mode: intention }));
    }
}

/// A transaction at one of its participants, with what that derives from it.
#[derive(Debug, Clone)]
pub struct Work {
    /// The transaction, whole.
    pub transaction: Arc<Transaction>,
    /// The place among the parts.
    pub place: usize,
    /// What it locks here.
    pub locks: Vec<Lock>,
    /// The bytes of the transaction in a message, at most.
    pub bytes: usize,
    /// The places of the keys that it writes and does not read.
    blind_writes: Vec<u32>,
}

impl Work {
    /// The work of `shard`, if it takes part.
    #[must_use]
    pub fn new(transaction: &Arc<Transaction>, shard: ShardId) -> Option<Work> {
        let place = transaction.place(shard)?;
        let part = &transaction.parts[place];
        let (locks, blind_writes) = (part.locks(), part.blind_writes());
        let bytes = transaction.bytes();
        Some(Work { transaction: Arc::clone(transaction), place, locks, bytes, blind_writes })
    }

    /// The keys that it rests on: those that it reads, and those that it may write. Of a key that is declared as written and not
    /// written in the end, the value stays that of the writer before.
    pub fn keys(&self) -> impl Iterator<Item = &KeyAccess> {
        let part = self.part();
        let blind = self.blind_writes.iter().map(|place| &part.writes[*place as usize]);
        part.reads.iter().chain(blind)
    }

    /// What it touches here.
    #[must_use]
    pub fn part(&self) -> &Part {
        &self.transaction.parts[self.place]
    }

    /// The name of the transaction.
    #[must_use]
    pub fn id(&self) -> TransactionId {
        self.transaction.id
    }

    /// Begins its digest at this timestamp, with what does not depend on other transactions.
    #[must_use]
    pub fn digester(&self, t: Time) -> Digester {
        let TransactionId { node, worker, sequence } = self.id();
        let mut digester = Digester::new(t.0);
        for word in [node.0.into(), worker.0.into(), sequence] {
            digester.word(word);
        }
        match &self.transaction.body {
            Body::Pieces { call } | Body::Whole { call } => {
                digester.bytes(call.procedure.as_bytes());
                digester.bytes(&call.arguments);
            }
            Body::Certify => {
                self.part().certificate.versions.iter().for_each(|it| digester.word(*it));
            }
        }
        digester
    }
}

/// A transaction that another rests on directly.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct Predecessor {
    /// The transaction that something read was written by.
    pub stamp: Stamp,
    /// Several shards take part in it.
    pub is_multi: bool,
}

/// What a transaction rests on at a replica.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// Covers all of it.
    pub digest: Digest,
    /// Transactions that it rests on directly and that are not decided there, each once, by stamps.
    pub predecessors: Vec<Predecessor>,
}

impl History {
    /// The bytes that it adds to a list.
    #[must_use]
    pub fn bytes(&self) -> usize {
        2 * ROW_BYTES + self.predecessors.len() * PREDECESSOR_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_written_and_not_read_are_found_in_any_order() {
        let key = |byte: u8| KeyAccess {
            table: TableId(0),
            key: Bytes::copy_from_slice(&[byte]),
            granule_bytes: 0,
        };
        let blind = |reads: &[u8], writes: &[u8]| {
            let mut part = Part::new(ShardId(0), Ballot::default());
            part.reads = reads.iter().map(|byte| key(*byte)).collect();
            part.writes = writes.iter().map(|byte| key(*byte)).collect();
            part.blind_writes()
        };
        assert_eq!(blind(&[], &[]), []);
        assert_eq!(blind(&[], &[1, 2]), [0, 1]);
        assert_eq!(blind(&[1, 2, 3], &[1, 2, 3]), []);
        assert_eq!(blind(&[1, 2, 3], &[3, 1, 4, 2, 5]), [2, 4]);
        let only_read = |reads: &[u8], writes: &[u8]| {
            let mut part = Part::new(ShardId(0), Ballot::default());
            part.reads = reads.iter().map(|byte| key(*byte)).collect();
            part.writes = writes.iter().map(|byte| key(*byte)).collect();
            part.only_read().map(|access| access.key[0]).collect::<Vec<u8>>()
        };
        assert_eq!(only_read(&[1, 2], &[]), [1, 2]);
        assert_eq!(only_read(&[1, 2, 3], &[1, 2, 3]), []);
        assert_eq!(only_read(&[3, 1, 4, 2, 5], &[1, 2, 3]), [4, 5]);
    }
}
