//! Epochs open, close and are settled while transactions go on (`docs/recovery.md`; rules M8, M9).

use crate::branch::MakoBranch;
use crate::commit_waits::CommitWaiter;
use crate::epoch_ends::{clock_of, end_at, watermark_of};
use crate::leader_shard::EpochClosing;
use crate::message::MakoReply;
use crate::observation::MakoObservation;
use crate::planted_bugs::MakoPlantedBug;
use crate::{Mako, MakoEffects};
use shoal_cluster::manager::{Configuration, ManagerRequest};
use shoal_engine::engine::EngineEffect;
use shoal_types::{
    Aborted, Ballot, Clock, Conflict, Epoch, ShardId, Stamp, StampRef, Time, VectorWatermark,
};

impl Mako {
    /// Handles the epochs that have opened, ended or been settled since the last step.
    pub(crate) fn follow_epochs(&mut self, effects: &mut MakoEffects) {
        let newest = self.runtime.worker_context.epoch.get();
        let Some(news) = self.epochs.news(&self.shared.epochs, newest) else { return };
        for (epoch, watermark) in news.opened {
            self.epochs.open(epoch, watermark, self.runtime.worker_context.now.get());
            self.waits.open(epoch);
            self.watermarks.borrow_mut().begin(epoch);
            self.runtime.worker_context.epoch.set(epoch);
        }
        self.give_up_closed(effects);
        self.watermarks.borrow_mut().forget(news.forgotten);
        for last in news.settled {
            self.settle(last, effects);
        }
    }

    /// A node has learned that an epoch is open.
    pub(crate) fn open_epoch(&mut self, epoch: Epoch, effects: &mut MakoEffects) {
        if self.shared.epochs.raise(epoch) {
            effects.observe(|| MakoObservation::Opened { epoch });
            self.runtime.nudge_others(effects);
        }
        self.follow_epochs(effects);
    }

    /// A node has learned how an epoch ended.
    pub(crate) fn learn_settled(&mut self, last: VectorWatermark, effects: &mut MakoEffects) {
        let epoch = Epoch(last.epoch().0 + 1);
        if self.shared.epochs.settle(last) {
            effects.observe(|| MakoObservation::Opened { epoch });
            self.runtime.nudge_others(effects);
        }
        self.follow_epochs(effects);
    }

    /// An epoch has ended: only transactions that its end covers are ever reported and replayed.
    fn settle(&mut self, last: VectorWatermark, effects: &mut MakoEffects) {
        let epoch = last.epoch();
        let shared = self.epochs.settle(epoch);
        {
            let mut watermarks = self.watermarks.borrow_mut();
            let view = watermarks.live_mut(epoch).expect("it is not settled");
            shared.refresh(view);
            watermarks.settle(last.clone());
        }
        for (own, stamp, waiter) in self.waits.settle(epoch) {
            if self.watermarks.borrow().covers(own, stamp.as_ref()) {
                self.tell(own, stamp, &waiter, effects);
            } else {
                self.tell_rolled_back(&stamp, &waiter, effects);
            }
        }
        self.replay_settled(epoch, effects);
        self.begin_sweeps(&last, effects);
        effects.observe(|| MakoObservation::Settled { watermark: last });
    }

    /// The epoch has ended without it.
    pub(crate) fn tell_rolled_back(
        &mut self,
        stamp: &Stamp,
        waiter: &CommitWaiter,
        effects: &mut MakoEffects,
    ) {
        let error = Err(Aborted::RolledBack { epoch: stamp.epoch }.into());
        match &waiter.reveals {
            None => {
                let transaction = waiter.attempt.id;
                let settled = self.epochs.get(stamp.epoch).is_none();
                effects.observe(|| MakoObservation::RolledBack { transaction, settled });
                self.counters.rolled_back += 1;
                self.runtime.finish(&waiter.attempt, error);
            }
            Some(slot) => slot.fill(error),
        }
    }

    /// The last epoch that has been closed for so long that nothing waits for what is in flight of it.
    pub(crate) fn overdue(&self, now: Time) -> Epoch {
        self.epochs.closed_for(self.options().hang_after, now)
    }

    /// When the next epoch becomes overdue.
    pub(crate) fn next_overdue(&self, now: Time) -> Option<Time> {
        self.epochs.next_closed_for(self.options().hang_after, now)
    }

    /// Ends branches whose epoch was closed long ago and that have locked nothing: no coordinator asks more of
    /// them, or learns that they are over.
    pub(crate) fn end_overdue(&mut self, overdue: Epoch, effects: &mut MakoEffects) {
        self.epochs.end_branches(overdue);
        for number in 0.. {
            let Some(at) = self.leader_shards.leading_place(number) else { return };
            self.drop_hanging(at, overdue.min(self.leader_shards[at].ended()), effects);
        }
    }

    /// Ends epochs on the stream of the shard at this place, or closes its batch, if it is time for that.
    pub(crate) fn close_batch(
        &mut self,
        now: Time,
        at: usize,
        overdue: Epoch,
        effects: &mut MakoEffects,
    ) {
        let (shard, open) =
            (self.leader_shards[at].lead.shard, self.runtime.worker_context.epoch.get());
        let settled = self.watermarks.borrow().settled();
        let replica = self.shared.replica(shard).expect("held");
        if !self.leader_shards[at].may_append(now, open, settled, replica, self.options()) {
            return;
        }
        self.install_more(at, effects);
        let closed = {
            let watermarks = &self.watermarks.borrow();
            let replica = self.shared.replica(shard).expect("held");
            let hangs = |flight| self.hangs(flight, now);
            let closing = EpochClosing { open, overdue, hangs: &hangs };
            let ends = self.leader_shards[at].ends(&closing, replica, self.options());
            self.leader_shards[at].close(now, ends, watermarks, replica, &self.shared.setup.options)
        };
        let Some(closed) = closed else { return };
        let hung = closed.ends.iter().filter(|(_, clock)| *clock < Clock::MAX);
        let hung = hung.map(|(epoch, _)| *epoch).next_back();
        if let Some(last) = hung {
            self.suspect_hanging(at, last, now);
        }
        self.propose(at, closed, effects);
        if let Some(last) = hung {
            self.drop_hanging(at, last, effects);
        }
    }

    /// Epochs up to `last` have ended on a stream with clocks in flight: what those were drawn for is
    /// lost, and its locks are free.
    fn drop_hanging(&mut self, at: usize, last: Epoch, effects: &mut MakoEffects) {
        if self.options().faults.has(MakoPlantedBug::KeepDeadLocks) {
            return;
        }
        self.end_branches(at, last, effects);
        let lead = &self.leader_shards[at].lead;
        assert!(lead.is_over(last), "M3: {last} is over on {}, and something flies", lead.shard);
    }

    /// Ends the branches on a shard that belong to `last` or to an epoch before.
    pub(crate) fn end_branches(&mut self, at: usize, last: Epoch, effects: &mut MakoEffects) {
        let ended = Some(MakoReply::Refused { error: Mako::not_open(last) });
        self.drop_installing(at, |epoch| epoch <= last, effects);
        let over = self.branches.end_epochs(self.leader_shards[at].lead.shard, last, &ended);
        for (transaction, context) in over {
            self.drop_context(at, transaction, Some(context), effects);
        }
    }

    /// Ends branches that hold no lock and whose coordinators are dead, or live anew: nothing else would, if
    /// those lead nothing, so that no epoch ends with them.
    pub(crate) fn end_orphans(&mut self, effects: &mut MakoEffects) {
        let ended = Some(MakoReply::Refused {
            error: Mako::not_open(self.runtime.worker_context.epoch.get()),
        });
        for at in 0..self.leader_shards.len() {
            let failure_detector = &self.failure_detector;
            let over =
                self.branches.end(self.leader_shards[at].lead.shard, &ended, |id, _, context| {
                    let is_open = match context {
                        MakoBranch::Open { .. } => true,
                        MakoBranch::Slicing(slicing) => slicing.is_open(),
                        MakoBranch::Locked { .. } => false,
                    };
                    is_open && failure_detector.is_gone(id)
                });
            for (transaction, context) in over {
                self.drop_context(at, transaction, Some(context), effects);
            }
        }
    }

    /// A stream of `shard` that this worker leads has ended an epoch, durably, and has all of it up to
    /// `clock`.
    pub(crate) fn ended(
        &mut self,
        shard: ShardId,
        ballot: Ballot,
        epoch: Epoch,
        clock: Clock,
        effects: &mut MakoEffects,
    ) {
        // How an epoch ends whose end was lost, the configuration says.
        if self.losses.force(shard, epoch) {
            return;
        }
        let Some(watermark) = self.shared.epochs.end(shard, ballot, epoch, clock) else { return };
        if !self.end_shard(shard, epoch, watermark, effects) {
            return;
        }
        effects.observe(|| MakoObservation::Reported { shard, epoch, watermark });
        effects.push(EngineEffect::Manager(ManagerRequest::Report {
            shard,
            epoch,
            end: end_at(watermark),
        }));
    }

    /// All streams of `shard` have ended an epoch, durably: every later leader finds these ends and reports the same. So
    /// this is final for the shard (rule M12), however others end, and need not be waited for. False where that is for the
    /// configuration to say, since another worker has learned that the shard's majority is lost.
    fn end_shard(
        &mut self,
        shard: ShardId,
        epoch: Epoch,
        last: Clock,
        effects: &mut MakoEffects,
    ) -> bool {
        let Some(live) = self.epochs.get(epoch) else { return true };
        let Some(news) = live.end_led(shard, last) else { return false };
        if news {
            self.gossip.comes_further();
            self.runtime.nudge_others(effects);
        }
        true
    }

    /// The configuration says which shards have ended epochs that are not settled, and which take no part in the open
    /// one.
    pub(crate) fn learn_ends(&mut self, configuration: &Configuration, effects: &mut MakoEffects) {
        self.epochs.allow_forgetting(configuration.forgotten);
        if self.epochs.first().epoch() <= configuration.forgotten {
            // A process that begins: one that has data of such an epoch has ended (`ManagerClient`).
            self.shared.epochs.begin_behind(configuration.forgotten);
            self.watermarks.borrow_mut().forget(configuration.forgotten);
        }
        let mut news = false;
        for live in self.epochs.iter() {
            let ends = configuration.ends.get(&live.epoch()).into_iter().flatten();
            for (shard, end) in (0..).map(ShardId).zip(ends) {
                news |= end.as_ref().is_some_and(|end| live.end(shard, clock_of(end)));
            }
            let assignments = (0..).map(ShardId).zip(&configuration.shards);
            for (shard, assignment) in assignments {
                let out = live.epoch() == configuration.epoch && assignment.out.is_some();
                news |= out && live.end(shard, Clock::MAX);
            }
        }
        if news {
            self.gossip.comes_further();
            self.runtime.nudge_others(effects);
        }
        let settled = self.epochs.iter().filter_map(|live| configuration.last(live.epoch()));
        let settled: Vec<VectorWatermark> = settled.map(|last| watermark_of(&last)).collect();
        for last in settled {
            self.learn_settled(last, effects);
        }
    }

    /// Is there an FVW that the manager keeps no more?
    pub(crate) fn may_forget_finals(&self) -> bool {
        let first = self.watermarks.borrow().first_partial();
        first.is_some_and(|first| first <= self.epochs.may_forget())
    }

    /// Forgets the FVWs of epochs that the manager keeps no more, once nothing is left here that they do not cover: all
    /// streams have brought these FVWs and are stable behind them, and passes over the stores are over.
    pub(crate) fn forget_finals(&mut self) {
        if self.collections.len() > 0 {
            return;
        }
        let may_forget = self.epochs.may_forget();
        let mut led = self.leader_shards.iter();
        if led.any(|led| led.led_since().is_some() && !led.serves())
            || self.shared.undecided.iter().any(|undecided| undecided.len() > 0)
        {
            return;
        }
        let leaderships = &self.runtime.worker_context.leaderships;
        let held = self.follower_replays.iter().filter(|it| leaderships.holds(it.shard()));
        let stable = held.map(|followed| followed.stable().extent().finals);
        let last = stable.min().map_or(may_forget, |last| last.min(may_forget));
        self.watermarks.borrow_mut().forget(last);
        self.shared.epochs.forget(self.runtime.worker_context.place.worker, last);
    }

    /// Some shards have ended an epoch that is not settled, for good: what depends on more of them than
    /// there is has lost, and need not wait until the other shards know.
    pub(crate) fn give_up_lost(&mut self, epoch: Epoch, effects: &mut MakoEffects) {
        self.replay(|replays, target| replays.end(epoch, target));
        for (own, stamp, waiter) in self.waits.take_all(epoch) {
            self.await_cover(own, stamp, waiter, effects);
        }
        self.begin_sweeps_of_live(epoch, effects);
    }

    /// The error of a transaction whose epoch has closed before it was certified, or has not opened.
    pub(crate) fn not_open(epoch: Epoch) -> shoal_types::Error {
        Aborted::from(Conflict::EpochNotOpen { epoch }).into()
    }

    /// Was this, kept by `shard`, certified in an epoch that ended without it?
    pub(crate) fn rejects(&self, shard: ShardId, stamp: StampRef<'_>) -> bool {
        self.watermarks.borrow().rejects(shard, stamp)
    }
}
