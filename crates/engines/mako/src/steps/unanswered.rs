//! Waits for other shards have a bound (rule M11).
//!
//! A transaction waits for a participant's answer, and, once it is certified, for the watermark. Where the other
//! shard has no serving leader, neither comes. After [`Limits::shard_wait_max`] the wait ends with an error that names
//! the shard: *aborted* where nothing can have happened, *unknown* where the transaction was certified, or where
//! one participant was to do all of it. Nothing is kept here for it then: no session, no lock.
//!
//! A transaction that holds locks while it waits does not wait as long: after [`MakoOptions::hang_after`] it ends, if the leader
//! that it waits for is silent. Its participants on healthy shards have drawn clocks for it, which their watermarks
//! cannot pass, and everything there would wait for a failed shard. When it runs again, it waits at its first read there,
//! without locks; or takes none while that leader is silent, if it only writes there. For the same reason a leader that
//! recovers its shard refuses to lock or to validate; all else it is asked waits until it serves.
//!
//! Silence resolves nothing (rule M3): what a participant holds for such a transaction goes when the coordinator resolves it, or with
//! the epoch. So the coordinator, which may lead nothing, asks for the end of the epoch, and says that the transaction has ended
//! until that is confirmed, or the epoch was closed for as long: then no request is sent again, and participants need not
//! remember the number any more. And a leader
//! whose stream decides nothing for [`MakoOptions::stalled_after`] draws no clock any more and asks for the same: what it
//! certified could never be answered, and would hold up those that read it.
//!
//! [`MakoOptions::hang_after`]: crate::MakoOptions::hang_after
//! [`Limits::shard_wait_max`]: shoal_engine::execution::Limits::shard_wait_max
//! [`MakoOptions::stalled_after`]: crate::MakoOptions::stalled_after

use crate::planted_bugs::MakoPlantedBug;
use crate::{Mako, MakoEffects};
use shoal_engine::execution::remote_branches::RemoteBranches;
use shoal_types::{Aborted, Conflict, Error, Result, ShardId, Time, Unknown};

impl Mako {
    /// Ends what has waited too long for other shards.
    pub(crate) fn expire(&mut self, now: Time, effects: &mut MakoEffects) {
        if self.options().faults.has(MakoPlantedBug::WaitForever) {
            return;
        }
        self.give_up_on_silent(now, effects);
        // Of epochs that were closed for as long as any wait takes participants keep nothing.
        let over = self.epochs.closed_for(self.runtime.worker_context.limits.shard_wait_max, now);
        let expired = self.runtime.expire(now, |_, epoch| epoch <= over);
        let mut silent = expired.in_open_epoch;
        for branch in expired.undecided {
            self.give_up_on(branch, effects);
        }
        if self.waits.next_due().is_some_and(|at| at <= now) {
            silent = silent.or(self.expire_waiters(now));
        }
        if let Some(shard) = silent {
            self.failure_detector.is_unanswered(self.runtime.worker_context.epoch.get(), shard);
        }
    }

    /// A transaction waits for others while it holds locks: it is to be looked after.
    pub(crate) fn watch_for_silence(&mut self) {
        if !self.options().faults.has(MakoPlantedBug::HoldForSilent) {
            let at = self.runtime.worker_context.now.get() + self.options().hang_after;
            self.coordinator.look_for_silence(at);
        }
    }

    /// Ends transactions that hold locks, and clocks on other shards, while they wait for a leader that is silent: those
    /// shards would come no further until that one has a successor.
    fn give_up_on_silent(&mut self, now: Time, effects: &mut MakoEffects) {
        if self.coordinator.silence_due().is_none_or(|at| at > now) {
            return;
        }
        let (hang_after, silent_after) = (self.options().hang_after, self.options().silent_after);
        let soon = now + silent_after / 2;
        let mut next = Time::MAX;
        let mut silent = Vec::new();
        let worker_context = &self.runtime.worker_context;
        let leaders = worker_context.topology.shard_ids().map(|shard| worker_context.leader(shard));
        let is_silent = |node| self.failure_detector.silent_at(node, silent_after) <= now;
        if !leaders.filter(|node| *node != worker_context.place.node).any(is_silent) {
            let next = if self.runtime.awaits_answers() { soon } else { Time::MAX };
            return self.coordinator.looked_for_silence(next);
        }
        for (key, to, since) in self.runtime.unanswered() {
            if !self.coordinator.holds_besides(key) {
                continue;
            }
            // Far nodes have been found to need longer.
            let answers_by = since + hang_after * self.failure_detector.patience(to);
            let at = self.failure_detector.silent_at(to, silent_after).max(answers_by);
            match at <= now {
                true => silent.push((key, to)),
                false => next = next.min(at.clamp(now + silent_after / 4, soon)),
            }
        }
        self.coordinator.looked_for_silence(next);
        for (key, to) in silent {
            self.failure_detector.suspect(to);
            self.give_up_on(key, effects);
        }
    }

    /// A shard that a transaction writes, and that is led by a node which was given up on and is still silent. A node that
    /// leads nothing has no news of leaders but their answers, and asks.
    pub(crate) fn silent_writer(&self, remote_branches: &RemoteBranches) -> Option<ShardId> {
        let (worker_context, patience) =
            (&self.runtime.worker_context, self.options().silent_after);
        let is_silent =
            |node| self.failure_detector.is_silent(node, worker_context.now.get(), patience);
        let remotes = remote_branches.remotes();
        let mut writers =
            remotes.iter().filter(|remote| remote.writes && is_silent(remote.leader.node));
        let shard = writers.next().map(|remote| remote.shard);
        shard.filter(|_| worker_context.leaderships.is_leader(worker_context.place.node))
    }

    /// Ends transactions that have waited too long for the watermark. Returns the shard that one of the open epoch waited for.
    fn expire_waiters(&mut self, now: Time) -> Option<ShardId> {
        let wait_max = self.runtime.worker_context.limits.shard_wait_max;
        let expired = self.waits.expire(now, wait_max, &self.watermarks.borrow());
        let open = self.runtime.worker_context.epoch.get();
        let silent = expired.iter().find(|(_, waiter)| waiter.attempt.epoch == open);
        let silent = silent.map(|(shard, _)| *shard);
        for (shard, waiter) in expired {
            match waiter.reveals {
                None => {
                    let error = Unknown::NotDurable { shard }.into();
                    self.runtime.finish(&waiter.attempt, Err(error));
                }
                Some(slot) => slot.fill(Err(Aborted::from(Conflict::NoAnswer { shard }).into())),
            }
        }
        silent
    }

    /// When the next wait may be over.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        if self.options().faults.has(MakoPlantedBug::WaitForever) {
            return None;
        }
        let others = [self.waits.next_due(), self.coordinator.silence_due()];
        self.runtime.next_expiry().into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Does this worker's stream of the shard at this place decide nothing, for so long that it may never again?
    pub(crate) fn is_stalled(&self, at: usize) -> bool {
        self.leader_shards[at]
            .lead
            .is_stalled(self.runtime.worker_context.now.get(), self.options().stalled_after)
    }

    /// When the next stream may count as stalled.
    pub(crate) fn next_stall(&self, now: Time) -> Option<Time> {
        let after = self.options().stalled_after;
        let led = self.leader_shards.leading();
        let led = led.filter_map(|(_, led)| Some(led.lead.waits_since()? + after));
        led.filter(|at| *at > now).min()
    }

    /// May the leader of the shard at this place draw clocks?
    ///
    /// # Errors
    /// [`Aborted::ShardOut`] where the shard takes no part in the epoch, [`Conflict::NoMajority`] where its stream decides
    /// nothing.
    pub(crate) fn check_draws(&self, at: usize) -> Result<()> {
        self.runtime.worker_context.check_takes_part(self.leader_shards[at].lead.shard)?;
        if self.is_stalled(at) && !self.options().faults.has(MakoPlantedBug::CertifyWhileStalled) {
            return Err(no_majority(self.leader_shards[at].lead.shard));
        }
        Ok(())
    }
}

fn no_majority(shard: ShardId) -> Error {
    Aborted::from(Conflict::NoMajority { shard }).into()
}
