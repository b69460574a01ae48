//! A node takes up and lays down the lead of shards as the configuration says (`docs/recovery.md`; rules
//! M7 and M9).
//!
//! ```text
//!            appointed      stream prepared      all inherited     own end of each    applied, or
//!  follows ──────────► waits ─────────► recovers ─────► is decided ─► epoch durable ─► undecided ─► serves
//!     ▲                                                                                              │
//!     └────────────────────── another is appointed, or leads the stream ─────────────────────────────┘
//! ```
//! Each worker recovers its own stream; a shard is served when all have. Requests for it wait meanwhile,
//! in a queue that is bounded in time and size. Other shards are not waited for: what was inherited and depends on
//! one that has not said how an epoch ended becomes a version that is undecided (`undecided.rs`, rule M12).

use crate::leader_state::LeaderState;
use crate::live_epochs::LiveEpoch;
use crate::message::MakoRequest;
use crate::observation::MakoObservation;
use crate::piece::ENDS_MAX;
use crate::{Mako, MakoEffects};
use shoal_cluster::manager::{Configuration, Incarnation};
use shoal_engine::execution::deferred_requests::DeferredRequest;
use shoal_engine::execution::participant_table::BranchHeader;
use shoal_engine::execution::worker_context::ConfigurationNews;
use shoal_types::Time;
use shoal_types::{Ballot, Clock, Epoch, NodeId, ShardId};

impl Mako {
    /// The configuration has changed.
    pub(crate) fn configured(
        &mut self,
        configuration: &Configuration,
        incarnation: Incarnation,
        effects: &mut MakoEffects,
    ) {
        self.failure_detector.configured(configuration);
        let ConfigurationNews { moved, given, taken } =
            self.runtime.worker_context.configured(configuration, incarnation);
        for at in 0..self.leader_shards.len() {
            let shard = self.leader_shards[at].lead.shard;
            let since = self.runtime.worker_context.leaderships.appointed_since(shard);
            if self.leader_shards[at].leader_state.as_ref().map(LeaderState::since) != since {
                self.step_down(at, effects);
            }
        }
        let worker = self.runtime.worker_context.place.worker;
        given.into_iter().for_each(|at| self.shared.replicas[at].give(worker));
        taken.into_iter().for_each(|at| self.lose_replica(at, effects));
        self.open_epoch(configuration.epoch, effects);
        self.learn_losses(configuration, effects);
        self.learn_ends(configuration, effects);
        self.end_orphans(effects);
        for shard in moved {
            self.lose_participant(shard, effects);
        }
        self.gossip.aim(&self.runtime.worker_context);
        self.snapshot_senders.look_again();
    }

    /// The node has no replica of the shard at this place any more: nothing of it is led, followed or copied.
    fn lose_replica(&mut self, at: usize, effects: &mut MakoEffects) {
        self.stop_giving(at, effects);
        self.snapshot_receivers.forget(at);
        self.collections.forget(at);
        let had_data = self.follower_replays.forget(at);
        let replica = &self.shared.replicas[at];
        if replica.take(self.runtime.worker_context.place.worker, had_data) {
            self.shared.undecided[at].lock().clear();
            self.runtime.worker_context.release(at);
        }
    }

    /// This worker's stream of `shard` is prepared under `ballot`.
    pub(crate) fn lead(
        &mut self,
        shard: ShardId,
        ballot: Ballot,
        length: u64,
        effects: &mut MakoEffects,
    ) {
        let at = self.place_of(shard).expect("a stream that is held");
        let since = self.runtime.worker_context.leaderships.appointed_since(shard);
        let Some(since) = since else { return }; // This node was deposed since.
        effects.observe(|| MakoObservation::Led { shard, ballot, length });
        let leader_state = self.leader_shards[at].begin_leading();
        match leader_state {
            Some(leader_state) => {
                // Appointed again: all is said again under the new ballot.
                leader_state.prepare_again(ballot);
                let ends: Vec<(Epoch, Clock)> = self
                    .follower_replays
                    .of(at)
                    .extent()
                    .ends
                    .iter()
                    .map(|(epoch, clock)| (*epoch, *clock))
                    .collect();
                if leader_state.is_closed() {
                    for (epoch, clock) in ends {
                        self.ended(shard, ballot, epoch, clock, effects);
                    }
                }
            }
            None => {
                *leader_state = Some(LeaderState::begin(ballot, since, length));
            }
        }
        self.leader_shards.look_up_recovering();
    }

    /// Another leads the stream.
    pub(crate) fn deposed(&mut self, shard: ShardId, effects: &mut MakoEffects) {
        let at = self.place_of(shard).expect("a stream that is held");
        self.step_down(at, effects);
    }

    /// This worker's stream has promised the ballot of another. Where the node was appointed before that, other workers of it
    /// may lead their streams still; what this one comes to from now on is not their leadership's, whether it ever led or not.
    pub(crate) fn promised(&self, shard: ShardId, ballot: Ballot) {
        let before = Epoch(ballot.epoch.0.saturating_sub(1));
        self.shared.replica(shard).expect("held").end_leadership(before);
    }

    /// Lays down the lead of a shard: what has been certified and is not durable may be lost. What was
    /// not certified is.
    fn step_down(&mut self, at: usize, effects: &mut MakoEffects) {
        let Some(leader_state) = &self.leader_shards[at].leader_state else { return };
        let shard = self.leader_shards[at].lead.shard;
        self.shared.replica(shard).expect("held").end_leadership(leader_state.since());
        self.runtime.worker_context.serve(at, false);
        self.end_branches(at, self.runtime.worker_context.epoch.get(), effects);
        self.leader_shards.resign(at);
        self.deferred.forget(shard);
    }

    /// Goes on with recovering every shard that this node has been appointed to lead.
    pub(crate) fn recover_all(&mut self, effects: &mut MakoEffects) {
        for at in 0..self.leader_shards.len() {
            self.recover(at, effects);
        }
        self.leader_shards.look_up_recovering();
    }

    /// Goes on with recovering the shard at this place, as far as it can be now.
    fn recover(&mut self, at: usize, effects: &mut MakoEffects) {
        let Some(leader_state) = &self.leader_shards[at].leader_state else { return };
        if !leader_state.is_recovering() {
            return;
        }
        if !leader_state.is_closed()
            && self.follower_replays.of(at).extent().length >= leader_state.inherited()
        {
            match self.losses.is_open(self.leader_shards[at].lead.shard) {
                true => self.tell_held(at, effects),
                false => self.close_former(at, effects),
            }
        }
        let knows_ends = self.knows_former_ends(at);
        let (shard, Some(leader_state)) =
            (self.leader_shards[at].lead.shard, &mut self.leader_shards[at].leader_state)
        else {
            return;
        };
        let through = self.follower_replays.of(at).is_through();
        // Locks of a former lead of this node are free.
        let is_free = self.runtime.worker_context.own[at].sessions.ending() == 0;
        if !leader_state.is_recovered()
            && leader_state.is_closed()
            && knows_ends
            && through
            && is_free
        {
            leader_state.recover();
            let ballot = leader_state.ballot();
            self.keep_undecided(at);
            let replica = self.shared.replica(shard).expect("held");
            if replica.recover(ballot) && self.install_undecided(at, effects) {
                self.shared.replica(shard).expect("held").install(ballot);
            }
            self.runtime.nudge_others(effects);
        }
        let replica = self.shared.replica(shard).expect("held");
        let Some(leader_state) = &mut self.leader_shards[at].leader_state else { return };
        if leader_state.is_recovered()
            && !leader_state.serves()
            && replica.is_recovered(leader_state.ballot())
        {
            leader_state.serve();
            let ballot = leader_state.ballot();
            let worker = self.runtime.worker_context.place.worker;
            replica.progress(worker, self.follower_replays.of(at).applied());
            self.runtime.worker_context.serve(at, true);
            effects.observe(|| MakoObservation::Serves { shard, ballot });
        }
    }

    /// Has this worker gone by how the shard at this place ended all epochs before the leadership? What its stream has of them
    /// waits no more then, unless it is undecided (seed 1075745351).
    fn knows_former_ends(&self, at: usize) -> bool {
        let (shard, Some(leader_state)) =
            (self.leader_shards[at].lead.shard, &self.leader_shards[at].leader_state)
        else {
            return false;
        };
        let mut former = self.epochs.iter().filter(|live| live.epoch() < leader_state.since());
        former.all(|live| self.watermarks.borrow().end_of(live.epoch(), shard).is_some())
    }

    /// All that was inherited is decided: nothing of the epochs before this leadership follows in this worker's
    /// stream, and the stream says so.
    fn close_former(&mut self, at: usize, effects: &mut MakoEffects) {
        let shard = self.leader_shards[at].lead.shard;
        let replica = self.shared.replica(shard).expect("held");
        let extent = self.follower_replays.of(at).extent();
        let (safe, ended, finals) = (extent.safe, extent.ended, extent.finals);
        // Clocks that are drawn from now on are above all in the streams.
        replica.store.raise_clock(extent.greatest.max(self.losses.greatest_end(shard)));
        let leader_state = self.leader_shards[at].leader_state.as_mut().expect("it leads");
        leader_state.close();
        let (ballot, since) = (leader_state.ballot(), leader_state.since());
        let settled = self.watermarks.borrow().settled();
        // Of some the end is known though the streams lack it: the shard was out.
        let end = |epoch| {
            let known = self.watermarks.borrow().end_of(epoch, shard);
            let live = self.epochs.get(epoch).map(LiveEpoch::watermark);
            let live = live.filter(|live| live.has_ended(shard)).map(|live| live.of(shard));
            (epoch, known.or(live).unwrap_or(safe))
        };
        let former: Vec<(Epoch, Clock)> =
            (ended.max(settled).0 + 1..since.0).map(|epoch| end(Epoch(epoch))).collect();
        let before: Vec<(Epoch, Clock)> =
            extent.ends.iter().map(|(epoch, clock)| (*epoch, *clock)).collect();
        let over = (ended.max(settled), finals);
        self.leader_shards.begin(at, extent.length, safe, over);
        for (epoch, clock) in before {
            self.ended(shard, ballot, epoch, clock, effects);
        }
        let now = self.runtime.worker_context.now.get();
        for ends in former.chunks(ENDS_MAX) {
            let closed = {
                let watermarks = self.watermarks.borrow();
                let options = &self.shared.setup.options;
                self.leader_shards[at].close_with(now, safe, ends.to_vec(), &watermarks, options)
            };
            self.propose(at, closed, effects);
        }
    }

    /// Keeps a request until the shard is recovered; no longer than a transaction may wait, and no more
    /// of them than may wait.
    pub(crate) fn defer(&mut self, from: NodeId, header: &BranchHeader, request: MakoRequest) {
        let worker_context = &self.runtime.worker_context;
        let (now, limits) = (worker_context.now.get(), &worker_context.limits);
        if !self.deferred.defer(now, limits, from, header, request) {
            self.runtime.counters.dropped += 1; // Its coordinator asks again.
        }
    }

    /// Serves the requests whose shards have been recovered, and drops those that have waited too long.
    pub(crate) fn serve_deferred(&mut self, now: Time, effects: &mut MakoEffects) {
        let worker_context = &self.runtime.worker_context;
        let (ready, dropped) =
            self.deferred.take_served(now, |shard| worker_context.own(shard).is_some());
        self.runtime.counters.dropped += dropped;
        for DeferredRequest { from, header, request, .. } in ready {
            self.serve(from, &header, request, effects);
        }
    }

    /// The place of a shard on this node.
    pub(crate) fn place_of(&self, shard: ShardId) -> Option<usize> {
        self.leader_shards.place_of(shard)
    }

    /// Asserts that this node holds its lease while it acts as the leader of a shard (rule M7).
    pub(crate) fn act_as_leader(&mut self, at: usize, effects: &mut MakoEffects) {
        let now = self.runtime.worker_context.now.get();
        assert!(
            self.holds_lease(now),
            "M7: {} acts as a leader at {now}, and its lease ended at {}",
            self.runtime.worker_context.place,
            self.leader_shards.lease_end()
        );
        let (shard, ballot) = (self.leader_shards[at].lead.shard, self.leader_shards[at].ballot());
        effects.observe(|| MakoObservation::Acted { shard, ballot });
    }
}
