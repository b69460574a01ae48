//! What a transaction depends on: the stamps of the versions it read (rules M1 and M8).

use crate::execution::worker_context::StoreBranch;
use crate::planted_bugs::{PlantedBug, PlantedBugs};
use crate::watermarks::Watermarks;
use shoal_types::{Aborted, Clock, Conflict, Epoch, Result, ShardId, Stamp, StampRef};

/// Whose reads they are, and what need not be waited for any more.
pub struct Reads<'a> {
    /// The shard that was read.
    pub shard: ShardId,
    /// The transaction's epoch.
    pub epoch: Epoch,
    /// What they cover adds nothing.
    pub watermarks: &'a Watermarks,
    /// Keep what it covers all the same: the paper's full-sized form.
    pub full: bool,
    /// Planted bugs.
    pub faults: PlantedBugs,
}

/// The dependencies of some reads.
pub struct Dependencies {
    /// As the shard that was read keeps it.
    pub stamp: Stamp,
    /// The place of the read after the last of these.
    pub reads: usize,
}

/// A version that was read.
#[derive(Clone, Copy)]
pub struct ReadVersion<'a> {
    /// Its stamp, as the shard that was read keeps it.
    pub stamp: StampRef<'a>,
    /// It says that there is no value.
    pub tombstone: bool,
}

/// The dependencies of the next `most` reads of `branch`, after the first `from`. Shows each of them to `visit`.
///
/// # Errors
/// Where a version belongs to another epoch than the transaction, and is of a later one, or not known
/// to be durable (rule M8): then the error names a shard that has not said how the epoch ended there, if there is one.
pub fn of(
    branch: &StoreBranch,
    (from, most): (usize, usize),
    reads: &Reads<'_>,
    visit: &mut dyn FnMut(ReadVersion<'_>),
) -> Result<Dependencies> {
    let mut stamp = Stamp::local(reads.epoch, Clock::ZERO);
    let mut foreign = None;
    let count = branch.versions_read(from, most, |version| {
        let read = ReadVersion { stamp: version.stamp, tombstone: version.value.is_none() };
        visit(read);
        let (epoch, covered) =
            (version.stamp.epoch, reads.watermarks.covers(reads.shard, version.stamp));
        let settles = covered || reads.faults.has(PlantedBug::ReadUnsettledEpoch);
        if epoch > reads.epoch || (epoch < reads.epoch && !settles) {
            let waits_for = reads.watermarks.waits_for(reads.shard, version.stamp);
            foreign = Some((epoch, waits_for.filter(|_| epoch < reads.epoch)));
            return;
        }
        if (covered && !reads.full)
            || epoch < reads.epoch
            || (read.tombstone && reads.faults.has(PlantedBug::IgnoreTombstoneStamp))
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
