//! What a transaction depends on: the stamps of the versions it read (rules M1 and M8).
//!
//! A participant gathers that for its branch, and the coordinator adds it up: [`depend`]. The sum is what a transaction
//! keeps beside the runtime; one that runs on a single own shard has none.

use crate::planted_bugs::MakoPlantedBug;
use crate::watermarks::Watermarks;
use shoal_engine::PlantedBugs;
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_engine::execution::session_pool::StoreBranch;
use shoal_engine::execution::worker_context::{ReadsToReveal, UnnotedReads, WorkerContext};
use shoal_types::{Aborted, Clock, Conflict, Epoch, Result, ShardId, Stamp, StampRef, View};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// Whose reads they are, and what need not be waited for any more.
pub(crate) struct Reads<'a> {
    /// The shard that was read.
    pub(crate) shard: ShardId,
    /// The transaction's epoch.
    pub(crate) epoch: Epoch,
    /// What they cover adds nothing.
    pub(crate) watermarks: &'a Watermarks,
    /// Keep what it covers all the same: the paper's full-sized form.
    pub(crate) full: bool,
    /// Planted bugs.
    pub(crate) faults: PlantedBugs<MakoPlantedBug>,
}

/// The dependencies of some reads.
pub(crate) struct Dependencies {
    /// As the shard that was read keeps it.
    pub(crate) stamp: Stamp,
    /// The place of the read after the last of these.
    pub(crate) reads: usize,
}

/// A version that was read.
#[derive(Clone, Copy)]
pub(crate) struct ReadVersion<'a> {
    /// The stamp, as the shard that was read keeps it.
    pub(crate) stamp: StampRef<'a>,
    /// The version says that there is no value.
    pub(crate) tombstone: bool,
}

/// The dependencies of the reads of `branch` in `range`, as many as there are. Shows each of them to `visit`, if it is given.
///
/// # Errors
/// Where a version belongs to another epoch than the transaction, and is of a later one, or not known
/// to be durable (rule M8): then the error names a shard that has not said how the epoch ended there, if there is one.
pub(crate) fn of(
    branch: &StoreBranch,
    range: Range<usize>,
    reads: &Reads<'_>,
    mut visit: Option<&mut dyn FnMut(ReadVersion<'_>)>,
) -> Result<Dependencies> {
    let mut stamp = Stamp::local(reads.epoch, Clock::ZERO);
    let mut foreign = None;
    // Most versions that are read have no remote entries: this clock alone decides whether they are covered.
    let reached = reads.watermarks.of(reads.epoch, reads.shard);
    let any_epoch = reads.faults.has(MakoPlantedBug::CompareClocksOfEpochs);
    let count = branch.versions_read(range.start, range.len(), |version| {
        let read = ReadVersion { stamp: version.stamp, tombstone: version.value.is_none() };
        if let Some(visit) = &mut visit {
            visit(read);
        }
        let is_of_epoch = version.stamp.epoch == reads.epoch || any_epoch;
        let is_local = version.stamp.remote.is_empty() && is_of_epoch;
        if is_local && version.stamp.clock <= reached && !reads.full {
            return;
        }
        let (epoch, covered) =
            (version.stamp.epoch, reads.watermarks.covers(reads.shard, version.stamp));
        let settles = covered || reads.faults.has(MakoPlantedBug::ReadUnsettledEpoch);
        if epoch > reads.epoch || (epoch < reads.epoch && !settles) {
            let waits_for = reads.watermarks.waits_for(reads.shard, version.stamp);
            foreign = Some((epoch, waits_for.filter(|_| epoch < reads.epoch)));
            return;
        }
        if (covered && !reads.full)
            || epoch < reads.epoch
            || (read.tombstone && reads.faults.has(MakoPlantedBug::IgnoreTombstoneStamp))
        {
            return;
        }
        stamp.merge(reads.shard, version.stamp.seen_by(reads.shard));
    });
    if let Some((epoch, waits_for)) = foreign {
        let conflict = match waits_for {
            Some(shard) => Conflict::Undecided { shard, epoch },
            None => Conflict::OtherEpoch { shard: reads.shard, epoch },
        };
        return Err(Aborted::from(conflict).into());
    }
    if !reads.full {
        reads.watermarks.prune(&mut stamp);
    }
    assert_eq!(stamp.epoch, reads.epoch, "M8: {stamp:?} is of another epoch");
    Ok(Dependencies { stamp, reads: count })
}

/// What a transaction depends on so far, written as its coordinator's home shard.
struct KnownDependencies(RefCell<Stamp>);

impl KnownDependencies {
    fn none(epoch: Epoch) -> KnownDependencies {
        KnownDependencies(RefCell::new(Stamp::local(epoch, Clock::ZERO)))
    }
}

/// Raises what a transaction depends on; `home` is its coordinator's home shard.
pub(crate) fn depend(transaction: &RemoteBranches, home: ShardId, on: View<'_>) {
    let epoch = transaction.epoch;
    if on.stamp == Stamp::local(epoch, Clock::ZERO).as_ref() {
        return; // All that was read is durable.
    }
    let known = transaction.engine_state(|| KnownDependencies::none(epoch));
    known.0.borrow_mut().merge(home, on);
}

/// What a transaction depends on so far, written as its coordinator's home shard.
pub(crate) fn known(transaction: &RemoteBranches) -> Stamp {
    match transaction.known_engine_state::<KnownDependencies>() {
        Some(known) => known.0.borrow().clone(),
        None => Stamp::local(transaction.epoch, Clock::ZERO),
    }
}

/// Adds to an open transaction what its reads of own shards depend on, before it shows them to its client (rule M5).
pub(crate) struct RevealedReads {
    pub(crate) watermarks: Rc<RefCell<Watermarks>>,
}

impl ReadsToReveal for RevealedReads {
    fn note(
        &self,
        worker_context: &WorkerContext,
        transaction: &RemoteBranches,
        unnoted: UnnotedReads<'_>,
    ) -> Result<usize> {
        let UnnotedReads { own, branch, from, most } = unnoted;
        let shard = worker_context.own[own].shard;
        let watermarks = self.watermarks.borrow();
        let (epoch, faults) = (transaction.epoch, PlantedBugs::NONE);
        let reads = Reads { shard, epoch, watermarks: &watermarks, full: false, faults };
        let added = of(branch, from..from.saturating_add(most), &reads, None);
        let added = added.inspect_err(|_| {
            // What was rolled back is dropped, now that it was met.
            branch.discard_read(|stamp| watermarks.rejects(shard, stamp));
        })?;
        depend(transaction, worker_context.home(), added.stamp.seen_by(shard));
        Ok(added.reads)
    }
}
