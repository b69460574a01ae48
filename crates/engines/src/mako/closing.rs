//! Epochs open, close and are settled while transactions go on (design §5, "Failure"; rules M8, M9).

use super::awaiting::Awaiting;
use super::shared::SharedWatermark;
use super::{Effects, Mako, Waiter};
use crate::engine::Effect;
use crate::observation::Observation;
use std::sync::Arc;
use types::{Aborted, Clock, Conflict, Epoch, ShardId, VectorWatermark};

/// An epoch that is not settled, as a worker sees it.
pub(super) struct Live {
    epoch: Epoch,
    /// What the workers of the node share of it.
    pub(super) watermark: Arc<SharedWatermark>,
    /// The version of that which the hub shows.
    pub(super) seen: u64,
    /// Who waits until something of this epoch is durable.
    pub(super) awaiting: Awaiting<Waiter>,
}

impl Live {
    pub(super) fn new(epoch: Epoch, watermark: Arc<SharedWatermark>, shards: usize) -> Live {
        Live { epoch, watermark, seen: 0, awaiting: Awaiting::new(shards) }
    }

    /// Which.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }
}

impl Mako {
    /// What this worker keeps of an epoch, if it is not settled.
    pub(super) fn live(&self, epoch: Epoch) -> Option<usize> {
        self.live.iter().position(|live| live.epoch == epoch)
    }

    /// Takes note of what has happened to epochs since the last time.
    pub(super) fn follow_epochs(&mut self, effects: &mut Effects) {
        let settled = self.desk.hub.watermarks.borrow().settled();
        let newest = self.live.last().map_or(settled, |live| live.epoch);
        let Some(news) = self.shared.epochs.news(&mut self.epochs_seen, newest, settled) else {
            return;
        };
        let shards = self.desk.hub.topology.shards() as usize;
        for (epoch, watermark) in news.opened {
            self.live.push(Live::new(epoch, watermark, shards));
            self.desk.hub.watermarks.borrow_mut().begin(epoch);
            self.desk.hub.epoch.set(epoch);
        }
        self.give_up_closed(effects);
        for last in news.settled {
            self.settle(last, effects);
        }
    }

    /// A node has heard that an epoch is open.
    pub(super) fn open_epoch(&mut self, epoch: Epoch, effects: &mut Effects) {
        if self.shared.epochs.raise(epoch) {
            self.desk.nudge_others(effects);
        }
        self.follow_epochs(effects);
    }

    /// A node has heard how an epoch ended.
    pub(super) fn hear_settled(&mut self, last: VectorWatermark, effects: &mut Effects) {
        if self.shared.epochs.settle(last) {
            self.desk.nudge_others(effects);
        }
        self.follow_epochs(effects);
    }

    /// The first epoch that is not settled has ended like this. What is covered may be told and
    /// replayed, and nothing else of it ever will be.
    fn settle(&mut self, last: VectorWatermark, effects: &mut Effects) {
        let mut live = self.live.remove(0);
        let epoch = live.epoch;
        {
            let mut watermarks = self.desk.hub.watermarks.borrow_mut();
            let view = watermarks.live_mut(epoch).expect("settled in order");
            live.watermark.refresh(view, live.seen);
            watermarks.settle(last);
        }
        for (own, stamp, waiter) in live.awaiting.take_all() {
            self.tell(own, stamp, &waiter, effects);
        }
        self.replay_settled(epoch, effects);
        effects.observe(|| Observation::Settled { epoch });
    }

    /// A stream of `shard` that this worker leads has ended these epochs, durably.
    pub(super) fn ended(&mut self, shard: ShardId, ends: Vec<Epoch>, effects: &mut Effects) {
        for last in ends {
            let reported = self.led_at(shard).map(|at| &mut self.led[at].reported).expect("led");
            let first = reported.0 + 1;
            *reported = last;
            for epoch in (first..=last.0).map(Epoch) {
                if !self.shared.epochs.end(shard, epoch) {
                    continue;
                }
                // Nothing was left hanging: all that was certified is durable.
                if let Some(at) = self.live(epoch)
                    && self.live[at].watermark.raise(shard, Clock::MAX)
                {
                    self.gossip.own_news = true;
                    self.desk.nudge_others(effects);
                }
                effects.push(Effect::Report { shard, epoch, watermark: Clock::MAX });
            }
        }
    }

    /// The error of a transaction whose epoch has closed before it was certified, or has not opened.
    pub(super) fn not_open(epoch: Epoch) -> types::Error {
        Aborted::from(Conflict::EpochNotOpen { epoch }).into()
    }
}
