//! The epochs that are not settled, as a worker sees them (`docs/recovery.md`): which is open, since when others are closed,
//! and what is reported of them.
//!
//! Invariants:
//!
//! - There is at least one; they are in order, and the newest alone is open.
//! - Branches are ended of closed epochs only.

use super::epochs::{EpochNews, Epochs};
use super::shared_watermark::SharedWatermark;
use shoal_types::{Clock, Epoch, ShardId, Time};
use std::sync::Arc;
use std::time::Duration;

/// How often all receive the same of an epoch that is closed.
const TOLD_MAX: u32 = 4;

/// An epoch that is not settled, as a worker sees it.
pub(super) struct LiveEpoch {
    epoch: Epoch,
    /// What the workers of the node share of it.
    watermark: Arc<SharedWatermark>,
    /// The version of that which the worker context shows.
    shown: u64,
    /// When this worker learned that the next one is open.
    closed_at: Option<Time>,
    /// The version of the watermark that was sent to all last, and how often.
    told: (u64, u32),
}

/// All epochs that are not settled.
pub(super) struct LiveEpochs {
    /// Oldest first.
    live: Vec<LiveEpoch>,
    /// The version of the node's epochs that this worker has seen.
    seen: u64,
    /// No branch of this epoch, or of one before, is open.
    branches_ended: Epoch,
    /// FVWs of epochs up to this one the manager keeps no more.
    may_forget: Epoch,
}

impl LiveEpoch {
    fn new(epoch: Epoch, watermark: Arc<SharedWatermark>) -> LiveEpoch {
        LiveEpoch { epoch, watermark, shown: 0, closed_at: None, told: (0, 0) }
    }

    /// The epoch of this state.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What the workers of the node share of it.
    pub(super) fn watermark(&self) -> &SharedWatermark {
        &self.watermark
    }

    /// Has the next epoch opened?
    pub(super) fn is_closed(&self) -> bool {
        self.closed_at.is_some()
    }

    /// Has the shared watermark changed since this was asked last?
    pub(super) fn has_changed(&mut self) -> bool {
        let version = self.watermark.version();
        std::mem::replace(&mut self.shown, version) != version
    }

    /// Whether there is something to send of it. Of an epoch that is closed the same is sent so often and no more: what gets lost
    /// all the same, the configuration shows.
    pub(super) fn has_news(&mut self) -> bool {
        let version = self.watermark.version();
        if self.told.0 != version {
            self.told = (version, 0);
        }
        self.closed_at.is_none() || self.told.1 < TOLD_MAX
    }

    /// The watermark was sent to all.
    pub(super) fn tell(&mut self) {
        self.told.1 = self.told.1.saturating_add(1);
    }

    /// `shard` has ended the epoch here, for good. Says whether that is news.
    ///
    /// # Panics
    /// If it was durable further than that (M9), or has ended the epoch otherwise (M12).
    pub(super) fn end(&self, shard: ShardId, last: Clock) -> bool {
        let news = self.watermark.end_at(shard, last);
        self.assert_ends(shard, last);
        news
    }

    /// The same, by what the streams say that this node leads. Nothing where the majority of `shard` is lost, and this node has
    /// said what it knows: its own streams are not to change that.
    pub(super) fn end_led(&self, shard: ShardId, last: Clock) -> Option<bool> {
        let news = self.watermark.end_led(shard, last)?;
        self.assert_ends(shard, last);
        Some(news)
    }

    fn assert_ends(&self, shard: ShardId, last: Clock) {
        let (reached, epoch) = (self.watermark.of(shard), self.epoch);
        assert_eq!(reached, last, "M9, M12: {shard} was durable further than it ended {epoch}");
    }

    /// Was it closed for so long?
    fn is_closed_for(&self, span: Duration, now: Time) -> bool {
        self.closed_at.is_some_and(|at| at + span <= now)
    }
}

impl LiveEpochs {
    /// `first` is open, and none was before.
    pub(super) fn new(first: Epoch, watermark: Arc<SharedWatermark>) -> LiveEpochs {
        let live = vec![LiveEpoch::new(first, watermark)];
        LiveEpochs { live, seen: 0, branches_ended: Epoch(first.0 - 1), may_forget: Epoch(0) }
    }

    /// An epoch, if it is not settled.
    pub(super) fn get(&self, epoch: Epoch) -> Option<&LiveEpoch> {
        // Mostly it is the open one.
        self.live.iter().rfind(|live| live.epoch == epoch)
    }

    /// All of them, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LiveEpoch> {
        self.live.iter()
    }

    /// The same, to record what is shown and answered of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LiveEpoch> {
        self.live.iter_mut()
    }

    /// The oldest.
    pub(super) fn first(&self) -> &LiveEpoch {
        self.live.first().expect("one is open")
    }

    /// What has become of the node's epochs since this was asked last; `newest` is the last that this worker knows.
    pub(super) fn news(&mut self, epochs: &Epochs, newest: Epoch) -> Option<EpochNews> {
        epochs.news(&mut self.seen, newest, self.live.iter().map(|live| live.epoch))
    }

    /// An epoch has opened, and the one before is closed.
    pub(super) fn open(&mut self, epoch: Epoch, watermark: Arc<SharedWatermark>, now: Time) {
        if let Some(last) = self.live.last_mut() {
            last.closed_at = Some(now);
        }
        self.live.push(LiveEpoch::new(epoch, watermark));
    }

    /// An epoch is settled. Returns what the workers of the node share of it.
    pub(super) fn settle(&mut self, epoch: Epoch) -> Arc<SharedWatermark> {
        let at = self.live.iter().position(|live| live.epoch == epoch);
        self.live.remove(at.expect("it is not settled")).watermark
    }

    /// The last epoch that has been closed for so long, and all before it.
    pub(super) fn closed_for(&self, span: Duration, now: Time) -> Epoch {
        let mut live = self.live.iter();
        let first = live.find(|live| !live.is_closed_for(span, now)).expect("one is open");
        Epoch(first.epoch.0 - 1)
    }

    /// May branches of this epoch, or of one before, not have ended?
    pub(super) fn may_have_branches(&self, last: Epoch) -> bool {
        last > self.branches_ended
    }

    /// Branches up to this epoch end now.
    pub(super) fn end_branches(&mut self, last: Epoch) {
        self.branches_ended = last;
    }

    /// When the next epoch whose branches are not ended has been closed for so long.
    pub(super) fn next_closed_for(&self, span: Duration, now: Time) -> Option<Time> {
        let live = self.live.iter().filter(|live| live.epoch > self.branches_ended);
        live.filter_map(|live| Some(live.closed_at? + span)).find(|at| *at > now)
    }

    /// FVWs of epochs up to this one the manager keeps no more.
    pub(super) fn may_forget(&self) -> Epoch {
        self.may_forget
    }

    /// The configuration says up to which epoch the manager keeps no FVW.
    pub(super) fn allow_forgetting(&mut self, last: Epoch) {
        self.may_forget = last;
    }

    /// Asserts the invariants above, where `open` is the open epoch.
    pub(super) fn assert_invariants(&self, open: Epoch) {
        let newest = self.live.last().expect("one is open");
        assert!(
            newest.epoch == open && !newest.is_closed(),
            "{open} is open, not {}",
            newest.epoch
        );
        assert!(self.branches_ended < open, "branches of {open} are ended, which is open");
        let mut pairs = self.live.windows(2);
        let in_order = |pair: &[LiveEpoch]| pair[0].epoch < pair[1].epoch && pair[0].is_closed();
        assert!(pairs.all(in_order), "epochs before {open} are out of order, or not closed");
    }
}
