//! The streams that a worker follows, and what of them is to be replayed in this step or a later one (rule M6).
//!
//! Invariants:
//!
//! - What a stream counts as stable in the store is replayed: [`FollowerReplay::assert_invariants`].
//! - Something that is left for a later step is looked at in each step, until it is done: [`FollowerReplays::is_left`]. So are
//!   entries that are not stable: [`FollowerReplays::is_unstable`].

use super::follower_replay::FollowerReplay;
use super::piece::StreamEntry;
use super::piece_replay::{replays, replays_kept};
use super::rollback_collections::LOCKED_PAUSE;
use super::shared::MakoShared;
use super::stable_prefix::{EntryContents, StreamExtent};
use super::undecided_versions::Decided;
use crate::observation::MakoObservation;
use crate::watermarks::Watermarks;
use shoal_replication::codec::StreamWrite;
use shoal_replication::replay_budget::ReplayBudget;
use shoal_types::{Epoch, Stamp, Time, WorkerId};

/// Where replay leaves what a checker may want to know.
type Observations = Option<Vec<MakoObservation>>;

/// All streams that a worker follows, in the order of the node's places: nothing comes of those of shards of which the node
/// has no replica.
pub(super) struct FollowerReplays {
    replays: Vec<FollowerReplay>,
    /// The stream that is the first to go on with what was left: one alone may have enough for a whole step.
    first: usize,
    /// How much may still be replayed in this step.
    budget: ReplayBudget,
    /// A piece is covered and not replayed: a lock was in the way, a delta waits for its base, or the step had replayed enough.
    is_blocked: bool,
    /// Of what was undecided something is decided, and not applied yet.
    undecided_left: bool,
    /// Nothing of that could be applied when it was tried last.
    undecided_stuck: bool,
    /// There are entries that are not stable in the store.
    is_unstable: bool,
}

/// What a worker replays on, and by.
#[derive(Clone, Copy)]
pub(super) struct ReplayTarget<'a> {
    pub(super) shared: &'a MakoShared,
    pub(super) watermarks: &'a Watermarks,
    pub(super) worker: WorkerId,
}

impl ReplayTarget<'_> {
    /// Publishes how far this worker has replayed the shard at this place.
    fn publish(&self, at: usize, replay: &FollowerReplay) {
        self.shared.replicas[at].progress(self.worker, replay.applied());
    }
}

impl FollowerReplays {
    /// Nothing of any stream is here yet.
    pub(super) fn new(shared: &MakoShared, shards: usize) -> FollowerReplays {
        let replays = shared.replicas.iter().map(|replica| FollowerReplay::new(replica, shards));
        FollowerReplays {
            replays: replays.collect(),
            first: 0,
            budget: ReplayBudget::default(),
            is_blocked: false,
            undecided_left: false,
            undecided_stuck: false,
            is_unstable: false,
        }
    }

    /// The stream of the shard at this place.
    pub(super) fn of(&self, at: usize) -> &FollowerReplay {
        &self.replays[at]
    }

    /// The streams, in the order of the node's places.
    pub(super) fn iter(&self) -> impl Iterator<Item = &FollowerReplay> {
        self.replays.iter()
    }

    /// How much there is to be replayed.
    pub(super) fn pending(&self) -> usize {
        let pieces = self.replays.iter().map(FollowerReplay::pending);
        pieces.sum::<usize>() + usize::from(self.undecided_left)
    }

    /// How many bytes all steps have replayed.
    pub(super) fn bytes(&self) -> u64 {
        self.budget.total()
    }

    /// A step begins, which may replay so many bytes.
    pub(super) fn begin_step(&self, now: Time, bytes: usize) {
        self.budget.begin(now, bytes);
    }

    /// The stream of the shard at this place has decided an entry of another worker.
    pub(super) fn enter(
        &mut self,
        at: usize,
        entry: StreamEntry,
        target: ReplayTarget<'_>,
        observations: &mut Observations,
    ) {
        let ReplayTarget { shared, watermarks, .. } = target;
        let replay = &mut self.replays[at];
        let shard = replay.shard();
        let mut keep = |sessions: &_, piece: &_| shared.keep(shard, sessions, piece);
        let mut apply = replays(shared, shard, &self.budget, observations);
        replay.enter(entry, watermarks, &shared.setup.options, &mut keep, &mut apply);
        drop(apply);
        self.is_unstable = true;
        target.publish(at, replay);
        self.note_blocked();
    }

    /// The stream of the shard at this place has decided an entry of this worker, which has it in the store.
    pub(super) fn note(&mut self, at: usize, said: EntryContents, settled: Epoch) {
        self.replays[at].note(said, settled);
        self.is_unstable = true;
    }

    /// The store has all that is stable in another replica's.
    pub(super) fn restore(&mut self, at: usize, extent: StreamExtent, target: ReplayTarget<'_>) {
        self.replays[at].restore(extent);
        self.note_blocked();
        target.publish(at, &self.replays[at]);
    }

    /// The node has no replica of the shard at this place any more. Says whether something of the stream had come.
    pub(super) fn forget(&mut self, at: usize) -> bool {
        let had_data = self.replays[at].forget();
        self.note_blocked();
        had_data
    }

    /// Replays what the watermark covers by now.
    pub(super) fn advance(&mut self, target: ReplayTarget<'_>, observations: &mut Observations) {
        for (at, replay) in self.replays.iter_mut().enumerate() {
            let mut apply = replays(target.shared, replay.shard(), &self.budget, observations);
            replay.advance(target.watermarks, &mut apply);
            target.publish(at, replay);
        }
        self.note_blocked();
    }

    /// Replays what is left of an epoch that is settled.
    pub(super) fn settle(
        &mut self,
        epoch: Epoch,
        target: ReplayTarget<'_>,
        observations: &mut Observations,
    ) {
        for (at, replay) in self.replays.iter_mut().enumerate() {
            let mut apply = replays(target.shared, replay.shard(), &self.budget, observations);
            replay.settle(epoch, target.watermarks, &mut apply);
            target.publish(at, replay);
        }
        self.note_blocked();
    }

    /// Shards have ended an epoch that is not settled: drops what depends on more of them than there is, and keeps what only
    /// other shards can decide.
    pub(super) fn end(&mut self, epoch: Epoch, target: ReplayTarget<'_>) {
        for (at, replay) in self.replays.iter_mut().enumerate() {
            let (shard, ReplayTarget { shared, watermarks, .. }) = (replay.shard(), target);
            replay.drop_rejected(epoch, watermarks);
            replay.set_aside(
                |other| other == epoch && watermarks.end_of(epoch, shard).is_some(),
                |sessions, piece| shared.keep(shard, sessions, piece),
            );
            target.publish(at, replay);
        }
    }

    /// The shard at this place has ended all epochs before this one: keeps what is undecided of them.
    pub(super) fn keep_before(&mut self, at: usize, since: Epoch, shared: &MakoShared) {
        let replay = &mut self.replays[at];
        let shard = replay.shard();
        replay.set_aside(
            |epoch| epoch < since,
            |sessions, piece| shared.keep(shard, sessions, piece),
        );
    }

    /// Takes note of whether something is covered and not replayed.
    fn note_blocked(&mut self) {
        self.is_blocked = self.replays.iter().any(|replay| !replay.is_through());
    }

    /// Goes on with what an earlier step has left, and tries again to replay what waits for locks of other workers.
    pub(super) fn retry(&mut self, target: ReplayTarget<'_>, observations: &mut Observations) {
        self.first = (self.first + 1) % self.replays.len();
        for at in (self.first..self.replays.len()).chain(0..self.first) {
            let replay = &mut self.replays[at];
            if !replay.is_through() {
                let shard = replay.shard();
                replay.replay(&mut replays(target.shared, shard, &self.budget, observations));
                target.publish(at, replay);
            }
        }
        self.note_blocked();
        if self.undecided_left {
            self.decide(target, observations);
        }
    }

    /// Decides what can be of what this node keeps as undecided.
    pub(super) fn decide(&mut self, target: ReplayTarget<'_>, observations: &mut Observations) {
        (self.undecided_left, self.undecided_stuck) = (false, false);
        for replay in &self.replays {
            let (shard, ReplayTarget { shared, watermarks, .. }) = (replay.shard(), target);
            let mut apply = replays_kept(shared, shard, &self.budget, observations);
            let apply = |stamp: &Stamp, write: &StreamWrite| apply(replay.sessions(), stamp, write);
            let Decided { is_through, gets_on } = shared.decide(shard, watermarks, apply);
            self.undecided_left |= !is_through;
            self.undecided_stuck |= !is_through && !gets_on;
        }
    }

    /// A snapshot has brought undecided versions, which may be decided by now.
    pub(super) fn leave_undecided(&mut self) {
        self.undecided_left = true;
    }

    /// Was something left for a later step?
    pub(super) fn is_left(&self) -> bool {
        self.is_blocked || self.undecided_left
    }

    /// When to go on with that.
    pub(super) fn next_due(&self, now: Time) -> Option<Time> {
        let is_stuck = || self.undecided_stuck || self.replays.iter().any(FollowerReplay::is_stuck);
        let goes_on = || self.budget.is_short() && !is_stuck();
        self.is_left().then(|| if goes_on() { now } else { now + LOCKED_PAUSE })
    }

    /// Are there entries of which the stores may have more for good by now?
    pub(super) fn is_unstable(&self) -> bool {
        self.is_unstable
    }

    /// Takes note of what the stores have for good by now.
    pub(super) fn stabilize(&mut self, target: ReplayTarget<'_>) {
        let ReplayTarget { shared, watermarks, worker } = target;
        let faults = shared.setup.options.faults;
        self.is_unstable = false;
        for (replica, replay) in shared.replicas.iter().zip(&mut self.replays) {
            replay.stabilize(replica, worker, watermarks, faults);
            self.is_unstable |= replay.stable().ahead() > 0;
        }
    }

    /// Asserts the invariants above.
    pub(super) fn assert_invariants(&self, worker: WorkerId) {
        self.replays.iter().for_each(|replay| replay.assert_invariants(worker));
        let is_blocked = || self.replays.iter().any(|replay| !replay.is_through());
        debug_assert!(self.is_blocked == is_blocked(), "M6: what is left is not looked at again");
        let is_unstable = || self.replays.iter().any(|replay| replay.stable().ahead() > 0);
        debug_assert!(
            self.is_unstable || !is_unstable(),
            "M6: entries are never found to be stable"
        );
    }
}
