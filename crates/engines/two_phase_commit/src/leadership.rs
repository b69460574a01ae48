//! A node takes up and lays down the lead of shards as the configuration says (rules P6 to P9).
//!
//! Each worker recovers its own stream of the shard; the shard is served when all have. What was decided under a former
//! leadership is in the store by then, what is prepared and not decided is locked, and what is neither never happens: an
//! entry of the new leadership is durable in every stream, which no later leader can do without.

use super::branch::ended;
use super::in_doubt_keys::OwnInDoubtKeys;
use super::leader_log::LeaderState;
use super::prepared_replay::PreparedReplay;
use super::{TwoPhaseCommit, TwoPhaseCommitEffects};
use crate::observation::TwoPhaseCommitObservation;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use shoal_cluster::manager::{Configuration, Incarnation};
use shoal_engine::engine::EngineEffect;
use shoal_engine::execution::worker_context::ConfigurationNews;
use shoal_types::{Ballot, ShardId};
use std::sync::Arc;

/// The manager receives the reports of a node from this worker only.
const REPORTER: shoal_types::WorkerId = shoal_types::WorkerId(0);

impl TwoPhaseCommit {
    /// The configuration has changed.
    pub(super) fn configured(
        &mut self,
        configuration: Arc<Configuration>,
        incarnation: Incarnation,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let ConfigurationNews { moved, given, taken } =
            self.runtime.worker_context.configured(&configuration, incarnation);
        for at in 0..self.leader_logs.len() {
            let shard = self.leader_logs[at].lead.shard;
            let since = self.runtime.worker_context.leaderships.appointed_since(shard);
            if self.leader_logs[at].leader_state.map(|state| state.since) != since {
                self.step_down(at, effects);
            }
        }
        let worker = self.runtime.worker_context.place.worker;
        given.into_iter().for_each(|at| self.shared.replicas[at].give(worker));
        taken.into_iter().for_each(|at| self.lose_replica(at, effects));
        self.configuration = Some(configuration);
        for shard in moved {
            self.lose_participant(shard, effects);
        }
        self.leave_orphans(effects);
        self.report(effects);
        self.admit();
    }

    /// A node that leads nothing coordinates transactions on the shards of others, as soon as it knows their leaders. One that
    /// has been appointed before lets transactions in when it serves.
    fn admit(&self) {
        let worker_context = &self.runtime.worker_context;
        let leads = |log: &super::LeaderLog| {
            worker_context.leaderships.appointed_since(log.lead.shard).is_some()
        };
        if !self.leader_logs.iter().any(leads) {
            worker_context.admission.serve(true);
        }
    }

    /// The node has no replica of the shard at this place any more: nothing of it is led, followed or copied.
    fn lose_replica(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let replica = &self.shared.replicas[at];
        effects.effects.extend(self.senders.stop(at).iter().map(|head| head.answer(replica.shard)));
        self.receivers.forget(at);
        self.copied_writes.remove(at);
        let had_data = self.prepared_replays[at].length() > 0;
        self.prepared_replays[at] = PreparedReplay::new(replica);
        if replica.take(self.runtime.worker_context.place.worker, had_data) {
            self.runtime.worker_context.release(at);
        }
    }

    /// This worker's stream of `shard` is prepared under `ballot`.
    pub(super) fn lead(
        &mut self,
        shard: ShardId,
        ballot: Ballot,
        length: u64,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let at = self.place_of(shard).expect("a stream that is held");
        let since = self.runtime.worker_context.leaderships.appointed_since(shard);
        let Some(since) = since else { return }; // It was deposed since.
        effects.observe(|| TwoPhaseCommitObservation::Led { shard, ballot, length });
        match &mut self.leader_logs[at].leader_state {
            // Appointed again: all is said again under the new ballot.
            Some(state) => (state.ballot, state.recovered) = (ballot, false),
            state => {
                let inherited = length;
                let [began, recovered, sealed, serves] = [false; 4];
                let seal = None;
                *state = Some(LeaderState {
                    ballot,
                    since,
                    inherited,
                    began,
                    recovered,
                    seal,
                    sealed,
                    serves,
                });
            }
        }
    }

    /// Lays down the lead of the shard at this place. What is not decided is left to the next leader, and nothing of it is
    /// said here any more.
    pub(super) fn step_down(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        if self.leader_logs[at].leader_state.is_none() {
            return;
        }
        let shard = self.leader_logs[at].lead.shard;
        self.runtime.worker_context.serve(at, false);
        self.deferred.forget(shard);
        self.install_rest(at, effects);
        self.prepared_replays[at].assert_installed();
        self.leave_home(at, effects);
        let over = self.branches.end(shard, &Some(ended(shard)), |_, _, _| true);
        for (transaction, context) in over {
            self.leave_branch(at, transaction, context, effects);
        }
        for branch in self.in_doubt[at].take_all() {
            self.leader_logs[at].lead.end_in_flight(branch.clock);
        }
        self.in_doubt_keys[at] = OwnInDoubtKeys::default();
        self.shared.in_doubt[at].end(self.leader_logs[at].since());
        let place = self.runtime.worker_context.place;
        for transaction in std::mem::take(&mut self.decisions[at]).transactions() {
            if (transaction.node, transaction.worker) == (place.node, place.worker) {
                self.runtime.forget_participants(transaction.sequence);
            }
        }
        self.decisions.iter_mut().for_each(|decisions| decisions.lose_participant(shard));
        self.leader_logs[at].resign();
    }

    /// Goes on with recovering every shard that this node has been appointed to lead, and with what is in doubt there: on
    /// all of them together by as many keys as a step may.
    pub(super) fn recover_all(&mut self, effects: &mut TwoPhaseCommitEffects) {
        (self.retries_locks, self.goes_on_locking) = (false, false);
        let mut left = self.in_doubt_budget.left;
        let shards = self.leader_logs.len();
        for number in 0..shards {
            let at = (self.recovers_first + number) % shards;
            self.resolve_decided(at, &mut left, effects);
            self.resolve_keys(at, &mut left, effects);
            self.recover(at, &mut left, effects);
        }
        if left == 0 {
            self.recovers_first = (self.recovers_first + 1) % shards;
        }
        self.in_doubt_budget.left = left;
    }

    fn recover(&mut self, at: usize, left: &mut usize, effects: &mut TwoPhaseCommitEffects) {
        let Some(state) = self.leader_logs[at].leader_state else { return };
        if state.recovered && state.serves && self.in_doubt[at].are_locked() {
            return;
        }
        let replay = &self.prepared_replays[at];
        let is_through = replay.length() >= state.inherited && !replay.is_blocked();
        // What a former lead left locked here has to be free.
        let is_free = self.runtime.worker_context.own[at].sessions.ending() == 0;
        if !state.began && is_through && is_free {
            self.begin_to_lead(at, effects);
        }
        let began = |log: &super::LeaderLog| log.leader_state.is_some_and(|it| it.began);
        if began(&self.leader_logs[at])
            && self.lock_in_doubt(at, left, effects)
            && !state.recovered
            && self.is_sealed(at)
            && let Some(state) = &mut self.leader_logs[at].leader_state
        {
            state.recovered = true;
            let replica = &self.shared.replicas[at];
            if replica.recover(state.ballot) {
                replica.install(state.ballot);
            }
            self.runtime.nudge_others(effects);
        }
        let replica = &self.shared.replicas[at];
        let Some(state) = &mut self.leader_logs[at].leader_state else { return };
        if state.recovered && !state.serves && replica.is_recovered(state.ballot) {
            state.serves = true;
            let (shard, ballot) = (replica.shard, state.ballot);
            self.assert_recovered(at);
            self.runtime.worker_context.serve(at, true);
            effects.observe(|| TwoPhaseCommitObservation::Serves { shard, ballot });
        }
        self.report(effects);
    }

    /// Can nothing of a former leadership be decided any more that this one has not inherited (rules P7 and P8)?
    pub(super) fn is_sealed(&self, at: usize) -> bool {
        let state = self.leader_logs[at].leader_state;
        state.is_some_and(|state| state.sealed)
            || self.options().faults.has(TwoPhaseCommitPlantedBug::ServeUnsealed)
    }

    /// All that was inherited of the stream at this place is decided and in the store. An entry of this leadership follows
    /// at once, with or without records: it seals what is before it.
    fn begin_to_lead(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let replay = &self.prepared_replays[at];
        // What is drawn from now on comes after all that the streams have.
        let (length, safe) = (replay.length(), replay.safe());
        self.shared.replicas[at].store.raise_clock(replay.greatest().max(safe));
        let state = self.leader_logs[at].leader_state.as_mut().expect("it leads");
        state.began = true;
        self.leader_logs[at].lead.begin(length, safe);
        self.find_decisions(at);
        self.find_in_doubt(at, effects);
    }

    /// What is prepared on the shard at this place, and not resolved, is locked before the shard is served, and an entry of
    /// this leadership is durable (rule P7).
    fn assert_recovered(&self, at: usize) {
        let shard = self.leader_logs[at].lead.shard;
        assert!(
            self.is_sealed(at),
            "P7: {shard} is served before an entry of its leader is durable"
        );
        assert!(
            self.shared.in_doubt[at].is_complete(self.leader_logs[at].since()),
            "P7: {shard} is served before all workers have registered what is in doubt there"
        );
        let ignores =
            self.options().faults.has(TwoPhaseCommitPlantedBug::ServeWithoutRecoveredLocks);
        for (transaction, branch) in self.in_doubt[at].iter() {
            assert!(
                branch.is_locked() || ignores,
                "P7: {shard} is served, and {transaction} is in doubt there without its locks"
            );
        }
    }

    /// Tells the manager how closed epochs ended on the shards that this node leads. No outcome here depends on that: what
    /// counts is what the streams have, whichever epoch it is from, and so nothing is ever left hanging. It is said when the
    /// shard is served: by then nothing of a former leadership can follow.
    fn report(&mut self, effects: &mut TwoPhaseCommitEffects) {
        let Some(configuration) = &self.configuration else { return };
        if self.runtime.worker_context.place.worker != REPORTER {
            return;
        }
        for log in self.leader_logs.iter().filter(|log| log.serves()) {
            let (shard, ballot) = (log.lead.shard, log.ballot());
            for epoch in configuration.closing() {
                if configuration.lacks_end(epoch, shard)
                    && self.reported.insert((shard, ballot, epoch))
                {
                    effects.push(EngineEffect::ended_whole(shard, epoch));
                }
            }
        }
        if !self.reported.is_empty() {
            self.reported.retain(|(.., epoch)| configuration.closing().any(|it| it == *epoch));
        }
    }

    /// The place of a shard on this node.
    pub(super) fn place_of(&self, shard: ShardId) -> Option<usize> {
        self.leader_logs.iter().position(|log| log.lead.shard == shard)
    }

    /// Asserts that this node holds its lease while it acts as the leader of a shard (rule P6).
    pub(super) fn act_as_leader(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let now = self.runtime.worker_context.now.get();
        assert!(
            self.holds_lease(now),
            "P6: {} acts as a leader at {now}, and its lease ended at {}",
            self.runtime.worker_context.place,
            self.lease_end
        );
        let (shard, ballot) = (self.leader_logs[at].lead.shard, self.leader_logs[at].ballot());
        effects.observe(|| TwoPhaseCommitObservation::Acted { shard, ballot });
    }
}
