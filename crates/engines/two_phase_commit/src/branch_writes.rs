//! The writes of a branch as its stream brings them, and how those that wait for an outcome travel with a copy (rule P10).
//!
//! ```text
//!   copy:  rows of table 0 │ … │ rows of the last table │ writes of transaction 3.0.7 │ writes of 3.0.9 │ …
//!                                                       └ place: a table beyond all others; transaction, list, number
//! ```
//! A snapshot's own message has the transactions and no writes: these can be many times what a frame takes. They
//! follow the rows as if they were those of one more table, in parts of the same size.

use super::message::SnapshotWrite;
use bytes::{BufMut, BytesMut};
use shoal_engine::transaction_id::TransactionId;
use shoal_replication::codec::StreamWrite;
use shoal_replication::replay_floor::ReplayClaim;
use shoal_replication::snapshot_transfer::CopyKey;
use shoal_store::{CopyPart, WalkPlace};
use shoal_types::limits::TABLES_MAX;
use shoal_types::wire::Coded;
use shoal_types::{Clock, NodeId, TableId, WorkerId};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// The table whose rows the writes of a copy are, as far as places go.
const WRITES: TableId = TableId(u32::MAX);

// It is behind all tables with rows.
const _: () = assert!(TABLES_MAX < WRITES.0 as usize);

/// The writes of a branch: a list for each entry that brought some. Clones share the lists. Its encoding is empty: writes
/// travel in parts of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Coded)]
pub(super) struct BranchWrites {
    #[coded(skip)]
    lists: Vec<Arc<[StreamWrite]>>,
}

impl BranchWrites {
    /// Adds what one more entry has brought.
    pub(super) fn push(&mut self, writes: Vec<StreamWrite>) {
        if !writes.is_empty() {
            self.lists.push(writes.into());
        }
    }

    /// The next writes from this place on, `most` at most, and moves the place behind them. `None` at the end.
    pub(super) fn next_from(&self, place: &mut BranchPlace, most: usize) -> Option<&[StreamWrite]> {
        let list = self.lists.get(place.list)?;
        let (from, until) = (place.write, list.len().min(place.write.saturating_add(most)));
        *place = match until == list.len() {
            true => BranchPlace { list: place.list + 1, write: 0 },
            false => BranchPlace { write: until, ..*place },
        };
        Some(&list[from..until])
    }

    /// Are there none?
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The lists, in the order of the stream.
    pub(super) fn into_lists(self) -> Vec<Arc<[StreamWrite]>> {
        self.lists
    }
}

/// A place among the writes of a branch; at first before all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BranchPlace {
    list: usize,
    write: usize,
}

/// A place among the writes of a copy: before the write with this number of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WritePlace {
    transaction: TransactionId,
    list: u32,
    number: u32,
}

impl WritePlace {
    fn form(self) -> WalkPlace {
        let WritePlace { transaction, list, number } = self;
        let mut key = BytesMut::new();
        // Not derived: big-endian, so that keys sort as places do.
        key.put_u32(transaction.node.0);
        key.put_u32(transaction.worker.0);
        key.put_u64(transaction.sequence);
        key.put_u32(list);
        key.put_u32(number);
        WalkPlace { table: WRITES, key: key.to_vec() }
    }

    /// The place that this stands for; `None` before the first write of all, and where it is nonsense.
    fn of(place: &WalkPlace) -> Option<WritePlace> {
        let key: &[u8; 24] = place.key[..].try_into().ok()?;
        let part = |at: usize| u32::from_be_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]);
        let sequence = u64::from(part(8)) << 32 | u64::from(part(12));
        let transaction =
            TransactionId { node: NodeId(part(0)), worker: WorkerId(part(4)), sequence };
        Some(WritePlace { transaction, list: part(16), number: part(20) })
    }
}

/// Where the writes of a copy begin, behind its rows.
pub(super) fn writes_begin() -> WalkPlace {
    WalkPlace { table: WRITES, key: Vec::new() }
}

/// Is the place one among the writes of a copy?
pub(super) fn is_among_writes(place: &WalkPlace) -> bool {
    place.table == WRITES
}

/// The writes that a copy brings beside its rows: of transactions that are prepared without an outcome, and the first ones
/// of those that are not prepared yet.
pub(super) type WritesToCome = BTreeMap<TransactionId, BranchWrites>;

/// The next writes from this place on, as many as a part may have, and one at least. Returns where the next part begins,
/// and `None` at the end.
pub(super) fn next_writes(
    writes: &WritesToCome,
    from: &WalkPlace,
    part: CopyPart,
) -> (Vec<SnapshotWrite>, Option<WalkPlace>) {
    let first = WritePlace::of(from);
    let least = TransactionId { node: NodeId(0), worker: WorkerId(0), sequence: 0 };
    let begins = first.map_or(least, |first| first.transaction);
    let (mut taken, mut bytes) = (Vec::new(), 0);
    for (&transaction, branch) in writes.range(begins..) {
        let goes_on = first.filter(|first| first.transaction == transaction);
        let (list, number) = goes_on.map_or((0, 0), |first| (first.list, first.number));
        let mut skipped = number as usize;
        for (writes, list) in branch.lists.iter().skip(list as usize).zip(list..) {
            for (write, number) in writes.iter().zip(0..).skip(std::mem::take(&mut skipped)) {
                if taken.len() >= part.records_max || bytes >= part.bytes_max {
                    return (taken, Some(WritePlace { transaction, list, number }.form()));
                }
                let write = SnapshotWrite { transaction, write: write.clone() };
                bytes += write.bytes();
                taken.push(write);
            }
        }
    }
    (taken, None)
}

/// What a sender has to know of a copy.
#[derive(Debug, Clone)]
pub(super) struct CopyContext {
    /// What the sender had of which keys when it began. Half a copy that it took itself may have brought more of the first.
    pub(super) claims: Rc<[ReplayClaim]>,
    /// What follows the rows.
    pub(super) writes: Rc<WritesToCome>,
}

impl CopyContext {
    /// What the sender had of the keys from this place on, up to some place.
    pub(super) fn claim(&self, from: &WalkPlace) -> &ReplayClaim {
        let covers = |it: &&ReplayClaim| it.until.as_ref().is_none_or(|until| until > from);
        self.claims.iter().find(covers).expect("the last is about all keys")
    }

    /// What the sender had of all keys.
    pub(super) fn cut(&self) -> Clock {
        self.claims.last().expect("one is about all keys").cut
    }
}

/// The writes that copies have brought so far, by the place of the shard.
#[derive(Debug, Default)]
pub(super) struct CopiedWrites {
    copies: BTreeMap<usize, (CopyKey, WritesToCome)>,
}

impl CopiedWrites {
    /// Takes the writes of a part whose turn has come.
    pub(super) fn take(&mut self, key: CopyKey, writes: &[SnapshotWrite]) {
        let kept = self.copies.entry(key.at).or_insert_with(|| (key, WritesToCome::new()));
        if kept.0 != key {
            *kept = (key, WritesToCome::new()); // The other copy was given up.
        }
        for writes in writes.chunk_by(|one, next| one.transaction == next.transaction) {
            let list = writes.iter().map(|it| it.write.clone()).collect();
            kept.1.entry(writes[0].transaction).or_default().push(list);
        }
    }

    /// The transactions of which a copy has brought writes.
    pub(super) fn transactions(&self, key: CopyKey) -> impl Iterator<Item = TransactionId> {
        let kept = self.copies.get(&key.at).filter(|(its, _)| *its == key);
        kept.into_iter().flat_map(|(_, writes)| writes.keys().copied())
    }

    /// Takes out all writes of the copy of the shard at this place, and forgets it.
    pub(super) fn remove(&mut self, at: usize) -> WritesToCome {
        self.copies.remove(&at).map(|(_, writes)| writes).unwrap_or_default()
    }

    /// How many transactions have writes here.
    pub(super) fn len(&self) -> usize {
        self.copies.values().map(|(_, writes)| writes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_store::Change;

    fn id(node: u32, sequence: u64) -> TransactionId {
        TransactionId { node: NodeId(node), worker: WorkerId(0), sequence }
    }

    fn write(key: &str) -> StreamWrite {
        let change = Change::Row(Bytes::from_static(b"value"));
        StreamWrite { table: TableId(0), key: Bytes::from(key.to_owned()), change }
    }

    #[test]
    fn writes_arrive_in_parts_as_they_were() {
        let mut branch = BranchWrites::default();
        branch.push(vec![write("a"), write("b")]);
        branch.push(Vec::new());
        branch.push(vec![write("c")]);
        let mut single = BranchWrites::default();
        single.push(vec![write("d")]);
        // The order of places is that of transactions, and not that of their bytes.
        let sent: WritesToCome =
            [(id(1, 256), branch.clone()), (id(1, 3), single.clone()), (id(256, 1), single)].into();
        for part in [
            CopyPart { records_max: 1, bytes_max: usize::MAX },
            CopyPart { records_max: 2, bytes_max: usize::MAX },
            CopyPart { records_max: usize::MAX, bytes_max: 1 },
            CopyPart { records_max: usize::MAX, bytes_max: usize::MAX },
        ] {
            let (mut here, key) =
                (CopiedWrites::default(), CopyKey { at: 0, peer: NodeId(1), copy: 7 });
            here.take(
                CopyKey { copy: 6, ..key },
                &[SnapshotWrite { transaction: id(1, 1), write: write("x") }],
            );
            let (mut from, mut parts) = (Some(writes_begin()), 0);
            while let Some(begins) = from {
                let (writes, until) = next_writes(&sent, &begins, part);
                assert!(
                    until.as_ref().is_none_or(|until| *until > begins && is_among_writes(until))
                );
                here.take(key, &writes);
                (from, parts) = (until, parts + 1);
            }
            assert_eq!(parts == 1, part.bytes_max == part.records_max, "{part:?}");
            assert!(here.transactions(key).eq(sent.keys().copied()));
            assert_eq!(here.len(), 3, "another copy is forgotten");
            let got = here.remove(0);
            let all = |writes: &WritesToCome| -> Vec<(TransactionId, StreamWrite)> {
                let pairs = writes.iter().flat_map(|(id, branch)| {
                    branch.lists.iter().flat_map(|list| &list[..]).map(|it| (*id, it.clone()))
                });
                pairs.collect()
            };
            assert_eq!(all(&got), all(&sent));
            assert_eq!(here.len(), 0);
        }
    }

    #[test]
    fn a_branch_is_read_in_slices() {
        let mut branch = BranchWrites::default();
        branch.push(vec![write("a"), write("b"), write("c")]);
        branch.push(vec![write("d")]);
        let mut place = BranchPlace::default();
        for keys in [&["a", "b"][..], &["c"], &["d"]] {
            let slice = branch.next_from(&mut place, 2).expect("not the end");
            assert!(slice.iter().map(|it| &it.key[..]).eq(keys.iter().map(|key| key.as_bytes())));
        }
        assert_eq!(branch.next_from(&mut place, 2), None);
        assert_eq!(BranchWrites::default().next_from(&mut BranchPlace::default(), 1), None);
    }

    #[test]
    fn there_may_be_none() {
        let part = CopyPart { records_max: 1, bytes_max: 1 };
        assert_eq!(next_writes(&WritesToCome::new(), &writes_begin(), part), (Vec::new(), None));
    }
}
