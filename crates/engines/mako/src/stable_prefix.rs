//! How much of a stream is stable in the store of its replica: every piece up to there is replayed or rejected, and
//! nothing of it can change any more. The stream may be cut there, and a snapshot begins there.
//!
//! ```text
//! entries   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒░░░░░░░
//!            stable       covered   still to be
//! ```
//! An entry is **covered** when the watermark covers each of its pieces, or the shard has ended their epochs: then those that
//! are not decided are kept elsewhere (`undecided_versions.rs`). It is
//! **stable** when, besides, all streams of the shard are covered up to the greatest clock in it. So all that
//! was written or deleted up to there is older than the cut that goes with it: see `steps/snapshot.rs`.

use super::mako_replica::MakoReplica;
use crate::planted_bugs::MakoPlantedBug;
use crate::watermarks::Watermarks;
use shoal_engine::PlantedBugs;
use shoal_types::wire::Coded;
use shoal_types::{Clock, Epoch, ShardId, Stamp, StampRef, WorkerId};
use std::collections::{BTreeMap, VecDeque};

/// What the entries of a stream say, up to one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Coded)]
pub(super) struct StreamExtent {
    /// How many entries.
    #[coded(short)]
    pub(super) length: u64,
    /// The safe clock of the last of them.
    #[coded(short)]
    pub(super) safe: Clock,
    /// No greater clock was seen.
    #[coded(short)]
    pub(super) greatest: Clock,
    /// The last epoch of which no more can come.
    #[coded(short)]
    pub(super) ended: Epoch,
    /// How far the stream has all of an epoch that has ended; without those of which none is asked for any more.
    pub(super) ends: BTreeMap<Epoch, Clock>,
    /// The last epoch whose FVW is there.
    #[coded(short)]
    pub(super) finals: Epoch,
}

/// What one entry says.
#[derive(Debug, Clone, Default)]
pub(super) struct EntryContents {
    /// See the entry.
    pub(super) safe: Clock,
    /// See the entry.
    pub(super) ends: Vec<(Epoch, Clock)>,
    /// The last epoch up to which there is an FVW in the stream.
    pub(super) finals: Epoch,
    /// What its pieces need.
    pub(super) needs: PieceNeeds,
}

/// What some pieces of a shard need before they count for good: the greatest of their stamps, epoch by epoch.
#[derive(Debug, Clone, Default)]
pub(super) struct PieceNeeds(Vec<Stamp>);

impl PieceNeeds {
    /// One more piece, with this stamp.
    pub(super) fn add(&mut self, own: ShardId, stamp: StampRef<'_>) {
        match self.0.iter_mut().find(|need| need.epoch == stamp.epoch) {
            Some(need) => need.merge(own, stamp.seen_by(own)),
            None => self.0.push(stamp.to_stamp()),
        }
    }

    /// The greatest clock of the pieces.
    fn greatest(&self) -> Clock {
        self.0.iter().map(|need| need.clock).max().unwrap_or_default()
    }

    /// Is it known of each piece whether it counts, or does that depend on other shards only?
    fn are_met(&self, own: ShardId, known: KnownEpochs<'_>) -> bool {
        let KnownEpochs { watermarks, finals } = known;
        let is_known = |need: &Stamp| {
            if need.epoch <= watermarks.forgotten() {
                return need.epoch <= finals; // Until then it waits in `follower_replay.rs`.
            }
            let has_ended = watermarks.end_of(need.epoch, own).is_some();
            has_ended || watermarks.covers(own, need.as_ref())
        };
        self.0.iter().all(is_known)
    }
}

/// What is known of epochs.
#[derive(Clone, Copy)]
pub(super) struct KnownEpochs<'a> {
    pub(super) watermarks: &'a Watermarks,
    /// The last epoch whose FVW the stream has brought.
    pub(super) finals: Epoch,
}

impl StreamExtent {
    /// Goes on by one entry, which says that. Of epochs up to `forget` it is not asked how they ended.
    ///
    /// # Panics
    /// If the safe clock goes back (M3), or an epoch ends twice (M9).
    pub(super) fn extend(&mut self, shard: ShardId, said: &EntryContents, forget: Epoch) {
        let EntryContents { safe, ends, finals, needs } = said;
        let (before, length) = (self.safe, self.length);
        assert!(*safe >= before, "M3: of {shard} {safe} follows {before} behind entry {length}");
        self.length += 1;
        self.safe = *safe;
        self.greatest = self.greatest.max(*safe).max(needs.greatest());
        self.finals = self.finals.max(*finals);
        for (epoch, clock) in ends {
            assert!(*epoch > self.ended, "M9: {shard} ended {epoch} twice");
            self.ended = *epoch;
            self.ends.insert(*epoch, *clock);
        }
        self.ends.retain(|epoch, _| *epoch > forget);
    }
}

/// How much of one log is in the store for good, and may be truncated.
#[derive(Debug, Default)]
pub(super) struct StablePrefix {
    /// What the store has.
    extent: StreamExtent,
    /// The entries behind.
    ahead: VecDeque<EntryContents>,
    /// So many of them are covered.
    covered: usize,
    /// The greatest clock of a piece that was stable since the last copy came, whose cut covers all before it.
    greatest: Clock,
}

impl StablePrefix {
    /// What is stable in the store.
    pub(super) fn extent(&self) -> &StreamExtent {
        &self.extent
    }

    /// No piece that was stable since the last copy came has a greater clock.
    pub(super) fn greatest(&self) -> Clock {
        self.greatest
    }

    /// How many entries are not stable.
    pub(super) fn ahead(&self) -> usize {
        self.ahead.len()
    }

    /// The stream has one more entry.
    pub(super) fn push(&mut self, said: EntryContents) {
        self.ahead.push_back(said);
    }

    /// The store is what was stable at another replica.
    pub(super) fn restore(&mut self, extent: StreamExtent) {
        *self = StablePrefix { extent, ..StablePrefix::default() };
    }

    /// Absorbs what can be now. All that is covered is replayed.
    ///
    /// # Panics
    /// If more is stable than all streams of the shard cover (M6): the cut of a copy would not.
    pub(super) fn advance(
        &mut self,
        replica: &MakoReplica,
        worker: WorkerId,
        known: KnownEpochs<'_>,
        faults: PlantedBugs<MakoPlantedBug>,
    ) {
        let StablePrefix { extent, ahead, covered, greatest } = self;
        if ahead.is_empty() {
            return;
        }
        let before = *covered;
        let is_covered = |said: &EntryContents| said.needs.are_met(replica.shard, known);
        while ahead.get(*covered).is_some_and(is_covered) {
            *covered += 1;
        }
        let cut = match *covered > before {
            true => replica.cover(worker, ahead[*covered - 1].safe),
            false => replica.covered(),
        };
        let alone = faults.has(MakoPlantedBug::StableAlone).then(|| replica.covered_by(worker));
        let cut = alone.unwrap_or(cut);
        let is_stable = |said: &EntryContents| {
            said.needs.greatest() <= cut || faults.has(MakoPlantedBug::CutCovered)
        };
        while *covered > 0 && is_stable(&ahead[0]) {
            let said = ahead.pop_front().expect("it is covered");
            let forget = extent.finals;
            extent.extend(replica.shard, &said, forget);
            *greatest = said.needs.greatest().max(*greatest);
            *covered -= 1;
        }
        let all = replica.covered();
        assert!(
            *greatest <= all,
            "M6: {worker} of {} is stable up to {greatest}, and its streams are covered up to {all}",
            replica.shard
        );
    }
}
