//! What `two_phase_commit` writes into its streams.
//!
//! ```text
//! entry       = epoch u32 | safe u64 | records u32 | record*
//! record      = kind u8 | transaction | what the kind says
//!   0 prepare     clock u64 | home u32 | writes
//!   1 commit      clock u64 | participants u32 | (shard u32)* | writes
//!   2 committed
//!   3 aborted
//! transaction = node u32 | worker u32 | sequence u64
//! ```
//! Little-endian; writes as in `replication/codec.rs`. A *commit* takes effect where it stands: it is
//! all of a transaction that writes one shard, or the decision on one that writes several, with what
//! it writes on its coordinator's home shard, if anything. *Committed* and *aborted* say what became of
//! an earlier *prepare* of the same stream. An entry without records only carries a safe clock.

use crate::replication::codec::{Malformed, Reader, Write, put_writes, take_entry};
use crate::transaction_id::TransactionId;
use bytes::{BufMut, Bytes, BytesMut};
use types::{Clock, Epoch, NodeId, ShardId, TableId, WorkerId};

const HEADER_BYTES: usize = 4 + 8 + 4;

const PREPARE: u8 = 0;
const COMMIT: u8 = 1;
const COMMITTED: u8 = 2;
const ABORTED: u8 = 3;

/// An entry under construction.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: BytesMut,
    records: u32,
}

/// An entry, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) epoch: Epoch,
    /// Of every transaction of this stream up to this clock, it is known here what became of it.
    pub(super) safe: Clock,
    pub(super) records: Vec<(TransactionId, Record)>,
}

/// See the module.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    Prepare {
        clock: Clock,
        /// In whose stream the decision will be.
        home: ShardId,
        writes: Vec<Write>,
    },
    Commit {
        /// Zero where nothing is written here.
        clock: Clock,
        /// The other shards that are written.
        participants: Vec<ShardId>,
        writes: Vec<Write>,
    },
    Committed,
    Aborted,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch { bytes: BytesMut::zeroed(HEADER_BYTES), records: 0 }
    }
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.records as usize
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn begin(&mut self, kind: u8, transaction: TransactionId) {
        self.bytes.put_u8(kind);
        self.bytes.put_u32_le(transaction.node.0);
        self.bytes.put_u32_le(transaction.worker.0);
        self.bytes.put_u64_le(transaction.sequence);
        self.records += 1;
    }

    /// Adds a prepare record; `writes` calls its argument for each write.
    pub(super) fn prepare(
        &mut self,
        transaction: TransactionId,
        clock: Clock,
        home: ShardId,
        writes: impl FnOnce(&mut dyn FnMut(TableId, &[u8], Option<&[u8]>)),
    ) {
        self.begin(PREPARE, transaction);
        self.bytes.put_u64_le(clock.0);
        self.bytes.put_u32_le(home.0);
        put_writes(&mut self.bytes, writes);
    }

    /// Adds a commit record; `writes` calls its argument for each write.
    pub(super) fn commit(
        &mut self,
        transaction: TransactionId,
        clock: Clock,
        participants: &[ShardId],
        writes: impl FnOnce(&mut dyn FnMut(TableId, &[u8], Option<&[u8]>)),
    ) {
        self.begin(COMMIT, transaction);
        self.bytes.put_u64_le(clock.0);
        self.bytes.put_u32_le(participants.len() as u32);
        participants.iter().for_each(|shard| self.bytes.put_u32_le(shard.0));
        put_writes(&mut self.bytes, writes);
    }

    /// Adds what became of a prepared transaction.
    pub(super) fn outcome(&mut self, transaction: TransactionId, committed: bool) {
        self.begin(if committed { COMMITTED } else { ABORTED }, transaction);
    }

    /// Takes the entry and begins another.
    pub(super) fn close(&mut self, epoch: Epoch, safe: Clock) -> Bytes {
        let Batch { bytes, records } = self;
        let mut header = &mut bytes[..HEADER_BYTES];
        header.put_u32_le(epoch.0);
        header.put_u64_le(safe.0);
        header.put_u32_le(std::mem::take(records));
        take_entry(bytes, HEADER_BYTES)
    }
}

fn read_record(reader: &mut Reader) -> Result<(TransactionId, Record), Malformed> {
    let kind = reader.u8()?;
    let transaction = TransactionId {
        node: NodeId(reader.u32()?),
        worker: WorkerId(reader.u32()?),
        sequence: reader.u64()?,
    };
    let record = match kind {
        PREPARE => Record::Prepare {
            clock: Clock(reader.u64()?),
            home: ShardId(reader.u32()?),
            writes: reader.writes()?,
        },
        COMMIT => {
            let clock = Clock(reader.u64()?);
            let mut participants = Vec::new();
            for _ in 0..reader.u32()? {
                participants.push(ShardId(reader.u32()?));
            }
            Record::Commit { clock, participants, writes: reader.writes()? }
        }
        COMMITTED => Record::Committed,
        ABORTED => Record::Aborted,
        _ => return Err(reader.malformed()),
    };
    Ok((transaction, record))
}

impl Entry {
    /// Takes apart an entry. Keys and values stay where they are.
    pub(super) fn decode(entry: Bytes) -> Result<Entry, Malformed> {
        let mut reader = Reader::new(entry);
        let (epoch, safe) = (Epoch(reader.u32()?), Clock(reader.u64()?));
        let mut records = Vec::new();
        for _ in 0..reader.u32()? {
            records.push(read_record(&mut reader)?);
        }
        reader.end()?;
        Ok(Entry { epoch, safe, records })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(sequence: u64) -> TransactionId {
        TransactionId { node: NodeId(4), worker: WorkerId(1), sequence }
    }

    fn batch() -> Batch {
        let mut batch = Batch::default();
        batch.prepare(id(1), Clock(7), ShardId(2), |write| {
            write(TableId(1), b"alice", Some(b"10"));
            write(TableId(2), b"bob", None);
        });
        batch.commit(id(2), Clock(8), &[ShardId(0), ShardId(5)], |write| {
            write(TableId(2), b"carol", Some(b""));
        });
        batch.outcome(id(1), true);
        batch.outcome(id(3), false);
        batch
    }

    #[test]
    fn an_entry_comes_back_as_it_was() {
        let back = Entry::decode(batch().close(Epoch(3), Clock(6))).expect("well formed");
        assert_eq!((back.epoch, back.safe), (Epoch(3), Clock(6)));
        let write = |table, key: &'static str, value: Option<&'static str>| Write {
            table: TableId(table),
            key: Bytes::from(key),
            value: value.map(Bytes::from),
        };
        let prepare = Record::Prepare {
            clock: Clock(7),
            home: ShardId(2),
            writes: vec![write(1, "alice", Some("10")), write(2, "bob", None)],
        };
        let commit = Record::Commit {
            clock: Clock(8),
            participants: vec![ShardId(0), ShardId(5)],
            writes: vec![write(2, "carol", Some(""))],
        };
        let expected = [
            (id(1), prepare),
            (id(2), commit),
            (id(1), Record::Committed),
            (id(3), Record::Aborted),
        ];
        assert_eq!(back.records, expected);
    }

    #[test]
    fn a_cut_entry_is_malformed() {
        let entry = batch().close(Epoch(3), Clock(6));
        for cut in 0..entry.len() {
            assert!(Entry::decode(entry.slice(..cut)).is_err(), "cut at {cut}");
        }
        assert!(Entry::decode(Bytes::from([&entry[..], b"x"].concat())).is_err());
        let mut strange = entry.to_vec();
        strange[HEADER_BYTES] = 9;
        assert!(Entry::decode(strange.into()).is_err());
    }
}
