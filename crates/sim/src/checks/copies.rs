//! M10: a copy of a shard that is sent to a replica holds committed versions only, and every version
//! committed up to its cut, or a newer one of the same key. The receiver drops the keys that a chunk leaves
//! out, up to the cut: so absence is judged as well as rows are. Where a key is left out that was deleted after
//! the cut, the chunk says that the deletion is durable.

use super::durable::Durable;
use super::installed::{Installed, InstalledVersion, InstalledVersions};
use super::replay;
use super::transactions::Transactions;
use super::verdict::RuleVerdict;
use shoal_types::{Clock, Epoch, ShardId, Stamp, TableId, VectorWatermark, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

/// A chunk of a copy, as its sender has observed it.
#[derive(Debug, Clone, Copy)]
pub struct SentChunk<'a> {
    /// The shard that is copied.
    pub shard: ShardId,
    /// The copy holds every version committed up to this clock, or a newer version of the same key.
    pub cut: Clock,
    /// The first key of the chunk's range.
    pub from: &'a (TableId, Vec<u8>),
    /// The key before which the chunk's range ends; `None` for the end of the shard.
    pub until: Option<&'a (TableId, Vec<u8>)>,
    /// The committed rows of the chunk, with the epoch and clock of each.
    pub rows: &'a [(TableId, Vec<u8>, Epoch, Clock)],
    /// All epochs up to this one were settled when the copy began.
    pub settled: Epoch,
    /// How far later ones are durable.
    pub watermarks: &'a [VectorWatermark],
    /// Versions that the chunk carries beside the rows, of which it is not decided whether they are
    /// committed.
    pub undecided: &'a [(TableId, Vec<u8>, Epoch, Clock)],
}

/// Orders the versions of one key: epoch first, then clock.
type CopyOrder = (Epoch, Clock);

/// What decides whether a version is committed.
#[derive(Clone, Copy)]
struct CommitJudge<'a> {
    shard: ShardId,
    transactions: &'a Transactions,
    durable: &'a Durable,
}

impl CommitJudge<'_> {
    /// Checks that the version with this epoch and clock is committed; the error names the shard that does
    /// not cover it.
    fn is_committed(&self, order: CopyOrder) -> RuleVerdict {
        let stamp = self.stamp(order);
        let writer = self.transactions.writer(self.shard, &stamp).map(|(_, seen)| seen);
        replay::covered(self.shard, &stamp, writer, self.durable)
    }

    /// The stamp of the version with this epoch and clock. The one that the leader installed says on which other shards
    /// the version depends, also where its coordinator never learned that and certified nothing (seed 134268586).
    fn stamp(&self, (epoch, clock): CopyOrder) -> Stamp {
        let local = Stamp::local(epoch, clock);
        let writer = self.transactions.writer(self.shard, &local).map(|(_, seen)| seen);
        let mut installed = writer.iter().flat_map(|seen| &seen.installed);
        let stamp = installed
            .find(|(shard, it)| *shard == self.shard && (it.epoch, it.clock) == (epoch, clock));
        stamp.map_or(local, |(_, stamp)| stamp.clone())
    }

    /// Checks what a chunk leaves out of a key, of which it `has` a version at most: if there is a value up to the cut that is newer,
    /// its deletion is as old as the cut, or the chunk says that it is durable.
    fn shows_deletion(
        &self,
        versions: &InstalledVersions,
        has: Option<CopyOrder>,
        chunk: &SentChunk<'_>,
    ) -> RuleVerdict {
        let committed = |order| self.is_committed(order).is_ok();
        let has_value = |at: &InstalledVersion| {
            at.value.is_some() && at.order.1 <= chunk.cut && committed(at.order)
        };
        let value = versions.all().iter().rfind(|at| has_value(at));
        let Some(value) = value.filter(|value| has < Some(value.order)) else { return Ok(()) };
        let is_told = |order: CopyOrder| {
            let watermark = chunk.watermarks.iter().find(|it| it.epoch() == order.0);
            order.1 <= chunk.cut
                || order.0 <= chunk.settled
                || watermark.is_some_and(|it| it.covers(self.shard, self.stamp(order).as_ref()))
        };
        let newer = versions.all().iter().rev().take_while(|at| at.order > value.order);
        let mut deletions = newer.filter(|at| at.value.is_none() && committed(at.order)).peekable();
        // Without a deletion the value is missing, which is judged elsewhere.
        match deletions.peek().map(|at| at.order) {
            Some((epoch, clock)) if !deletions.any(|at| is_told(at.order)) => Err(format!(
                "does not say that the deletion in {epoch} at {clock} is durable, and leaves out the row"
            )),
            _ => Ok(()),
        }
    }

    /// Checks that the version with this epoch and clock is in a decided entry of a shard that has ended its
    /// epoch and is not lost.
    fn is_in_a_decided_entry(&self, order: CopyOrder) -> RuleVerdict {
        match self.durable.ended(self.shard, order.0) {
            None => Err(format!("{} has not ended {}", self.shard, order.0)),
            Some(end) if order.1 > end => {
                Err(format!("{} has ended {} at {end}", self.shard, order.0))
            }
            Some(_) => Ok(()),
        }
    }

    /// The versions of a key up to `cut` that are newer than the newest committed one and may still be
    /// committed: a copy with this cut carries them, or newer ones.
    fn undecided(
        &self,
        versions: &InstalledVersions,
        cut: Clock,
    ) -> impl Iterator<Item = CopyOrder> {
        let newest_first = versions.all().iter().rev().map(|version| version.order);
        let open = newest_first.take_while(|order| self.is_committed(*order).is_err());
        open.filter(move |order| {
            let stamp = Stamp::local(order.0, order.1);
            let writer = self.transactions.writer(self.shard, &stamp).map(|(_, seen)| seen);
            let certified = writer.and_then(|seen| seen.certified.as_ref());
            let is_lost = certified.is_none_or(|it| self.durable.is_rolled_back(it.own, &it.stamp));
            order.1 <= cut && !is_lost && self.is_in_a_decided_entry(*order).is_ok()
        })
    }

    /// The newest committed version of a key that is not after `cut`, if it is a value and no later committed
    /// version is a tombstone: a copy with this cut has it, or a later value.
    fn expected(&self, versions: &InstalledVersions, cut: Clock) -> Option<CopyOrder> {
        let committed = |order| self.is_committed(order).is_ok();
        let mut newest_first = versions.all().iter().rev();
        let deleted = |at: &&InstalledVersion| at.value.is_none() && committed(at.order);
        let first =
            newest_first.find(|at| deleted(at) || (at.order.1 <= cut && committed(at.order)))?;
        first.value.is_some().then_some(first.order)
    }
}

/// Judges the cut of a copy of a shard: its sender has everything up to there, by the entries that its
/// streams hold, or by a copy up to `copied` that it has received itself.
pub fn reaches(
    shard: ShardId,
    cut: Clock,
    copied: Clock,
    held: &[(WorkerId, u64)],
    durable: &Durable,
) -> RuleVerdict {
    for (worker, length) in held {
        // Entries decided in the step that is under way are not known to the checks yet.
        let Some(safe) = durable.safe_with(shard, *worker, *length) else { continue };
        if cut > safe.max(copied) {
            return Err(format!(
                "a copy of {shard} has the cut {cut}, and stream {worker} of its sender has {length} entries, which \
                 have everything up to {safe}"
            ));
        }
    }
    Ok(())
}

/// Judges the final watermarks in the first chunk of a copy: its sender knows how the epochs after
/// `before` and up to `settled` ended, and sends the FVW of each epoch that lost something.
pub fn has_finals(
    before: Epoch,
    settled: Epoch,
    watermarks: &[VectorWatermark],
    durable: &Durable,
) -> RuleVerdict {
    let epochs = (before.0 + 1..=settled.0).map(Epoch);
    let partial = epochs.filter_map(|epoch| durable.last(epoch)).filter(|last| !last.is_whole());
    match partial.into_iter().find(|last| !watermarks.contains(last)) {
        None => Ok(()),
        Some(last) => Err(format!(
            "a copy says that {} and all before ended, and not how {} did: {last:?}",
            settled,
            last.epoch()
        )),
    }
}

/// Judges a chunk when it is sent.
pub fn check(
    given: SentChunk<'_>,
    installed: &Installed,
    transactions: &Transactions,
    durable: &Durable,
) -> RuleVerdict {
    let SentChunk { shard, cut, from, until, rows, undecided, .. } = given;
    let judge = CommitJudge { shard, transactions, durable };
    let name = |table: TableId, key: &[u8]| format!("of {table} '{}'", key.escape_ascii());
    let mut present = BTreeMap::new();
    for (table, key, epoch, clock) in rows {
        judge.is_committed((*epoch, *clock)).map_err(|what| {
            format!("a copy has a row {} that is not committed: {what}", name(*table, key))
        })?;
        present.insert((*table, &key[..]), (*epoch, *clock));
    }
    let mut open = BTreeSet::new();
    for (table, key, epoch, clock) in undecided {
        judge.is_in_a_decided_entry((*epoch, *clock)).map_err(|what| {
            format!("a copy has {epoch} {clock} {} as undecided: {what}", name(*table, key))
        })?;
        open.insert((*table, &key[..], (*epoch, *clock)));
    }
    for (table, key, versions) in installed.range(shard, from, until) {
        let has = present.get(&(table, key)).copied();
        let carries = |order| open.contains(&(table, key, order));
        let missing =
            judge.undecided(versions, cut).find(|order| !carries(*order) && has < Some(*order));
        if let Some((epoch, clock)) = missing {
            let name = name(table, key);
            return Err(format!(
                "a copy of {shard} with cut {cut} leaves out {epoch} {clock} {name}, which may count"
            ));
        }
        let newest = open.range(
            (table, key, (Epoch(0), Clock(0)))..=(table, key, (Epoch(u32::MAX), Clock::MAX)),
        );
        let has = has.max(newest.map(|(.., order)| *order).next_back());
        judge.shows_deletion(versions, has, &given).map_err(|what| {
            format!("a copy of {shard} with cut {cut} {what} {}", name(table, key))
        })?;
        let Some(expected) = judge.expected(versions, cut) else { continue };
        if has.is_none_or(|has| has < expected) {
            let has = has.map_or("nothing".into(), |(epoch, clock)| format!("{epoch} {clock}"));
            return Err(format!(
                "a copy of {shard} with cut {cut} has {has} {}, and {} {} is committed",
                name(table, key),
                expected.0,
                expected.1
            ));
        }
    }
    Ok(())
}
