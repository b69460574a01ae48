//! What `two_phase_commit` writes into its streams.
//!
//! ```text
//! entry       = leadership u32 | safe u64 | records u32 | record*
//! record      = kind u8 | transaction | what the kind says
//!   0 prepare     writes | clock u64 | home u32 | leadership of the home shard u32
//!   1 commit      writes | clock u64 | participants u32 | (shard u32)*
//!   2 committed
//!   3 aborted
//!   4 part        writes
//!   5 end
//! transaction = node u32 | worker u32 | sequence u64
//! ```
//! Little-endian; writes as in `replication/codec.rs`. A *commit* takes effect where it stands: it is
//! all of a transaction that writes one shard, or the decision on one that writes several, with what
//! it writes on its coordinator's home shard, if anything. *Committed* and *aborted* say what became of
//! an earlier *prepare* of the same stream. An entry without records only carries a safe clock. A *part* has
//! writes of the next *prepare* or *commit* of its transaction, which do not all fit into one entry; where the leadership
//! of an entry is another than that of a part before it, that part is of a transaction which came to nothing. *End* says
//! that all participants of a decided transaction have their outcomes durable: the decision is asked for no more. Not
//! derived: writes are encoded one by one from the write set, with no value of the whole record, and counts are put in
//! front afterwards.

use super::message::DecisionHome;
use bytes::{BufMut, Bytes, BytesMut};
use shoal_engine::execution::session_pool::PooledSession;
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::codec::{
    EntryReader, MalformedEntry, PutWrites, StreamWrite, WriteRef, spaced, take_entry,
};
use shoal_store::{DeltaUse, Locked};
use shoal_types::{Clock, Epoch, NodeId, ShardId, WorkerId};
use std::collections::VecDeque;
use std::fmt;

const HEADER_BYTES: usize = 4 + 8 + 4;

const PREPARE: u8 = 0;
const COMMIT: u8 = 1;
const COMMITTED: u8 = 2;
const ABORTED: u8 = 3;
const PART: u8 = 4;
const END: u8 = 5;

/// An entry that has grown to so many bytes takes no more writes, also where a part may be longer.
const ENTRY_BYTES_MAX: usize = 1 << 20;

/// How much of a transaction one entry takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PartSize {
    /// Bytes, but for one write.
    pub(super) bytes_max: usize,
    pub(super) writes_max: usize,
}

/// An entry under construction.
#[derive(Debug)]
pub(super) struct OpenRecords {
    part: PartSize,
    bytes: BytesMut,
    records: u32,
    /// Entries that come before, and how many records they have.
    full: VecDeque<(BytesMut, u32)>,
}

/// An entry, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordEntry {
    /// The leadership that appended it, by the epoch in which it began.
    pub(super) leadership: Epoch,
    /// Of every transaction of this stream up to this clock, it is known here what became of it.
    pub(super) safe: Clock,
    pub(super) records: Vec<(TransactionId, CommitRecord)>,
}

/// What an entry says of one transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommitRecord {
    Prepare {
        clock: Clock,
        /// In whose stream the decision will be.
        home: DecisionHome,
        writes: Vec<StreamWrite>,
    },
    Commit {
        /// Zero where nothing is written here.
        clock: Clock,
        /// The other shards that are written.
        participants: Vec<ShardId>,
        writes: Vec<StreamWrite>,
    },
    Committed,
    Aborted,
    /// The decision is asked for no more.
    End,
    /// The first of the writes of what follows.
    Part {
        writes: Vec<StreamWrite>,
    },
}

impl OpenRecords {
    pub(super) fn new(part: PartSize) -> OpenRecords {
        let (bytes, records, full) = (BytesMut::zeroed(HEADER_BYTES), 0, VecDeque::new());
        OpenRecords { part, bytes, records, full }
    }

    pub(super) fn part(&self) -> PartSize {
        self.part
    }

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

    /// Is there an entry that takes no more?
    pub(super) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// How many entries take no more.
    pub(super) fn full(&self) -> usize {
        self.full.len()
    }

    /// Begins a record with these writes. What does not fit into one entry is put into parts, an entry each.
    fn begin_with(
        &mut self,
        kind: u8,
        transaction: TransactionId,
        writes: impl FnOnce(&mut dyn FnMut(WriteRef<'_>)),
    ) {
        let mut kind_at = self.bytes.len();
        self.begin(kind, transaction);
        let mut put = PutWrites::begin(&mut self.bytes);
        let mut count = 0;
        let PartSize { bytes_max, writes_max } = self.part;
        writes(&mut |write| {
            let bytes = self.bytes.len();
            let is_full =
                bytes >= ENTRY_BYTES_MAX || bytes - kind_at >= bytes_max || count == writes_max;
            if count > 0 && is_full {
                count = 0;
                put.end(&mut self.bytes);
                self.bytes[kind_at] = PART;
                let full = std::mem::replace(&mut self.bytes, BytesMut::zeroed(HEADER_BYTES));
                self.full.push_back((full, std::mem::take(&mut self.records)));
                kind_at = self.bytes.len();
                self.begin(kind, transaction);
                put = PutWrites::begin(&mut self.bytes);
            }
            put.put(&mut self.bytes, write);
            count += 1;
        });
        put.end(&mut self.bytes);
    }

    /// Adds a prepare record; `writes` calls its argument for each write.
    pub(super) fn prepare(
        &mut self,
        transaction: TransactionId,
        clock: Clock,
        home: DecisionHome,
        writes: impl FnOnce(&mut dyn FnMut(WriteRef<'_>)),
    ) {
        self.begin_with(PREPARE, transaction, writes);
        self.bytes.put_u64_le(clock.0);
        self.bytes.put_u32_le(home.shard.0);
        self.bytes.put_u32_le(home.leadership.0);
    }

    /// Adds a commit record; `writes` calls its argument for each write.
    pub(super) fn commit(
        &mut self,
        transaction: TransactionId,
        clock: Clock,
        participants: &[ShardId],
        writes: impl FnOnce(&mut dyn FnMut(WriteRef<'_>)),
    ) {
        self.begin_with(COMMIT, transaction, writes);
        self.bytes.put_u64_le(clock.0);
        self.bytes.put_u32_le(participants.len() as u32);
        participants.iter().for_each(|shard| self.bytes.put_u32_le(shard.0));
    }

    /// Adds what became of a prepared transaction.
    pub(super) fn outcome(&mut self, transaction: TransactionId, committed: bool) {
        self.begin(if committed { COMMITTED } else { ABORTED }, transaction);
    }

    /// Adds that all participants of a decided transaction know the decision, durably.
    pub(super) fn end(&mut self, transaction: TransactionId) {
        self.begin(END, transaction);
    }

    /// Takes the next entry; the one that takes more is the last.
    pub(super) fn close(&mut self, leadership: Epoch, safe: Clock) -> Bytes {
        let put_header = |bytes: &mut BytesMut, records: u32| {
            let mut header = &mut bytes[..HEADER_BYTES];
            header.put_u32_le(leadership.0);
            header.put_u64_le(safe.0);
            header.put_u32_le(records);
        };
        if let Some((mut full, records)) = self.full.pop_front() {
            put_header(&mut full, records);
            return full.freeze();
        }
        put_header(&mut self.bytes, std::mem::take(&mut self.records));
        take_entry(&mut self.bytes, HEADER_BYTES)
    }
}

/// Which versions deltas may have as their bases.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeltaBases {
    pub(super) deltas: DeltaUse,
    /// The outcomes of all transactions of the shard up to this clock are durable (rule P5).
    pub(super) durable: Clock,
}

/// Calls `write` for what a transaction that holds its locks makes of each row. A delta has a base whose outcome is durable:
/// another outcome may be lost with its leader, and be decided again behind the delta, which then would wait for ever.
pub(super) fn writes_of(
    locked: &Locked<PooledSession>,
    bases: DeltaBases,
    write: &mut dyn FnMut(WriteRef<'_>),
) {
    let mut patch = Vec::new();
    locked.writes(|locked| {
        let change = locked.change(bases.deltas, |old| old.clock <= bases.durable, &mut patch);
        write(WriteRef { table: locked.table, key: locked.key, change });
    });
}

fn read_record(reader: &mut EntryReader) -> Result<(TransactionId, CommitRecord), MalformedEntry> {
    let kind = reader.u8()?;
    let transaction = TransactionId {
        node: NodeId(reader.u32()?),
        worker: WorkerId(reader.u32()?),
        sequence: reader.u64()?,
    };
    let record = match kind {
        PREPARE => CommitRecord::Prepare {
            writes: reader.writes()?,
            clock: Clock(reader.u64()?),
            home: DecisionHome { shard: ShardId(reader.u32()?), leadership: Epoch(reader.u32()?) },
        },
        PART => CommitRecord::Part { writes: reader.writes()? },
        COMMIT => {
            let writes = reader.writes()?;
            let clock = Clock(reader.u64()?);
            let mut participants = Vec::new();
            for _ in 0..reader.u32()? {
                participants.push(ShardId(reader.u32()?));
            }
            CommitRecord::Commit { clock, participants, writes }
        }
        COMMITTED => CommitRecord::Committed,
        ABORTED => CommitRecord::Aborted,
        END => CommitRecord::End,
        _ => return Err(reader.malformed()),
    };
    Ok((transaction, record))
}

impl RecordEntry {
    /// Takes apart an entry. Keys and values stay where they are.
    pub(super) fn decode(entry: Bytes) -> Result<RecordEntry, MalformedEntry> {
        let mut reader = EntryReader::new(entry);
        let (leadership, safe) = (Epoch(reader.u32()?), Clock(reader.u64()?));
        let mut records = Vec::new();
        for _ in 0..reader.u32()? {
            records.push(read_record(&mut reader)?);
        }
        reader.end()?;
        Ok(RecordEntry { leadership, safe, records })
    }
}

impl fmt::Display for RecordEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.records.iter().map(|(transaction, record)| {
            let TransactionId { node, sequence, .. } = transaction;
            format!("{node}.{sequence} {record}")
        });
        write!(f, "[{}] safe={}", records.collect::<Vec<_>>().join(", "), self.safe)
    }
}

impl fmt::Display for CommitRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommitRecord::Prepare { clock, home, writes } => {
                let DecisionHome { shard, leadership } = home;
                write!(
                    f,
                    "prepare clock={clock} home={shard} since {leadership}: {}",
                    spaced(writes)
                )
            }
            CommitRecord::Commit { clock, participants, writes } => {
                write!(f, "commit clock={clock} others=[{}]: ", spaced(participants))?;
                f.write_str(&spaced(writes))
            }
            CommitRecord::Committed => f.write_str("committed"),
            CommitRecord::Aborted => f.write_str("aborted"),
            CommitRecord::End => f.write_str("end"),
            CommitRecord::Part { writes } => write!(f, "part: {}", spaced(writes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_store::Change;
    use shoal_types::TableId;

    fn id(sequence: u64) -> TransactionId {
        TransactionId { node: NodeId(4), worker: WorkerId(1), sequence }
    }

    const PART: PartSize = PartSize { bytes_max: 1 << 20, writes_max: 4 };
    const HOME: DecisionHome = DecisionHome { shard: ShardId(2), leadership: Epoch(5) };

    fn batch() -> OpenRecords {
        let mut batch = OpenRecords::new(PART);
        batch.prepare(id(1), Clock(7), HOME, |write| {
            write(WriteRef::row(TableId(1), b"alice", b"10"));
            write(WriteRef { table: TableId(2), key: b"bob", change: Change::Delete });
        });
        batch.commit(id(2), Clock(8), &[ShardId(0), ShardId(5)], |write| {
            write(WriteRef::row(TableId(2), b"carol", b""));
        });
        batch.outcome(id(1), true);
        batch.outcome(id(3), false);
        batch.end(id(2));
        batch
    }

    #[test]
    fn an_entry_comes_back_as_it_was() {
        let back = RecordEntry::decode(batch().close(Epoch(3), Clock(6))).expect("well formed");
        assert_eq!((back.leadership, back.safe), (Epoch(3), Clock(6)));
        let write = |table, key: &'static str, value: Option<&'static str>| StreamWrite {
            table: TableId(table),
            key: Bytes::from(key),
            change: Change::of(value.map(Bytes::from)),
        };
        let prepare = CommitRecord::Prepare {
            clock: Clock(7),
            home: HOME,
            writes: vec![write(1, "alice", Some("10")), write(2, "bob", None)],
        };
        let commit = CommitRecord::Commit {
            clock: Clock(8),
            participants: vec![ShardId(0), ShardId(5)],
            writes: vec![write(2, "carol", Some(""))],
        };
        let expected = [
            (id(1), prepare),
            (id(2), commit),
            (id(1), CommitRecord::Committed),
            (id(3), CommitRecord::Aborted),
            (id(2), CommitRecord::End),
        ];
        assert_eq!(back.records, expected);
        assert_eq!(
            back.to_string(),
            "[n4.1 prepare clock=7 home=s2 since e5: alice=10 bob deleted, n4.2 commit clock=8 others=[s0 s5]: carol=, \
             n4.1 committed, n4.3 aborted, n4.2 end] safe=6"
        );
    }

    #[test]
    fn what_does_not_fit_into_one_entry_comes_in_parts() {
        let mut batch = batch();
        let value = vec![5; PART.bytes_max / 2];
        batch.prepare(id(9), Clock(20), HOME, |write| {
            (0..5).for_each(|key| write(WriteRef::row(TableId(1), &[key], &value)));
        });
        let mut keys = Vec::new();
        let mut last = None;
        for entries_left in (0..3).rev() {
            assert_eq!(batch.has_full(), entries_left > 0);
            let entry = batch.close(Epoch(3), Clock(6));
            assert!(entry.len() < 2 * PART.bytes_max, "{}", entry.len());
            for (of, record) in RecordEntry::decode(entry).expect("well formed").records {
                if of != id(9) {
                    continue;
                }
                assert_eq!(last, None, "something after the prepare");
                let writes = match record {
                    CommitRecord::Part { writes } => writes,
                    CommitRecord::Prepare { clock, home, writes } => {
                        last = Some((clock, home));
                        writes
                    }
                    other => panic!("{other:?}"),
                };
                keys.extend(writes.into_iter().map(|write| write.key[0]));
            }
        }
        assert_eq!((keys, last), (vec![0, 1, 2, 3, 4], Some((Clock(20), HOME))));
        assert_eq!(batch.len(), 0);
    }

    #[test]
    fn many_writes_come_in_parts_though_they_are_short() {
        let mut batch = batch();
        batch.prepare(id(9), Clock(20), HOME, |write| {
            (0..9).for_each(|key| write(WriteRef::row(TableId(1), &[key], b"")));
        });
        let mut counts = Vec::new();
        while counts.last() != Some(&1) {
            let entry = RecordEntry::decode(batch.close(Epoch(3), Clock(6))).expect("well formed");
            match &entry.records.last().expect("it has one").1 {
                CommitRecord::Part { writes } | CommitRecord::Prepare { writes, .. } => {
                    counts.push(writes.len());
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((counts, batch.len()), (vec![4, 4, 1], 0));
    }

    #[test]
    fn a_cut_entry_is_malformed() {
        let entry = batch().close(Epoch(3), Clock(6));
        for cut in 0..entry.len() {
            assert!(RecordEntry::decode(entry.slice(..cut)).is_err(), "cut at {cut}");
        }
        assert!(RecordEntry::decode(Bytes::from([&entry[..], b"x"].concat())).is_err());
        let mut strange = entry.to_vec();
        strange[HEADER_BYTES] = 9; // No kind.
        assert!(RecordEntry::decode(strange.into()).is_err());
    }
}
