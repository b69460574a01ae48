//! A node takes up and lays down the lead of shards as the configuration says (rules P6 to P9).
//!
//! Each worker recovers its own stream of the shard; the shard is served when all have. What was decided under a former
//! leadership is in the store by then, what is prepared and not decided is locked, and what is neither never happens: an
//! entry of the new leadership is durable in every stream, which no later leader can do without.

use crate::leader_state::LeaderState;
use crate::observation::TwoPhaseCommitObservation;
use crate::planted_bugs::TwoPhaseCommitPlantedBug;
use crate::shard_stream::ShardStream;
use crate::{TwoPhaseCommit, TwoPhaseCommitEffects};
use shoal_cluster::manager::{Configuration, Incarnation};
use shoal_engine::execution::worker_context::ConfigurationNews;
use shoal_types::{Ballot, ShardId};
use std::sync::Arc;

/// The manager receives the reports of a node from this worker only.
const REPORTER: shoal_types::WorkerId = shoal_types::WorkerId(0);

impl TwoPhaseCommit {
    /// The configuration has changed.
    pub(crate) fn configured(
        &mut self,
        configuration: Arc<Configuration>,
        incarnation: Incarnation,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let ConfigurationNews { moved, given, taken } =
            self.runtime.worker_context.configured(&configuration, incarnation);
        let mut from = 0;
        while let Some(at) = self.streams.next_led(from) {
            let (leaderships, log) =
                (&self.runtime.worker_context.leaderships, self.streams[at].log());
            if leaderships.appointed_since(log.shard()) != Some(log.since()) {
                self.step_down(at, effects);
            }
            from = at + 1;
        }
        let worker = self.runtime.worker_context.place.worker;
        given.into_iter().for_each(|at| self.shared.replicas[at].give(worker));
        taken.into_iter().for_each(|at| self.lose_replica(at, effects));
        self.configuration = Some(configuration);
        self.senders.look_again();
        for shard in moved {
            self.lose_participant(shard, effects);
        }
        self.leave_orphans(effects);
        self.report(effects);
    }

    /// The node has no replica of the shard at this place any more: nothing of it is led, followed or copied.
    fn lose_replica(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        self.stop_giving(at, effects);
        self.receivers.forget(at);
        self.copied_writes.remove(at);
        let replica = &self.shared.replicas[at];
        let had_data = self.streams[at].forget(replica);
        if replica.take(self.runtime.worker_context.place.worker, had_data) {
            self.runtime.worker_context.release(at);
        }
    }

    /// This worker's stream of `shard` is prepared under `ballot`.
    pub(crate) fn lead(
        &mut self,
        shard: ShardId,
        ballot: Ballot,
        length: u64,
        effects: &mut TwoPhaseCommitEffects,
    ) {
        let at = self.streams.place_of(shard).expect("a stream that is held");
        let since = self.runtime.worker_context.leaderships.appointed_since(shard);
        let Some(since) = since else { return }; // It was deposed since.
        effects.observe(|| TwoPhaseCommitObservation::Led { shard, ballot, length });
        self.streams.lead(at, ballot, since, length);
    }

    /// Lays down the lead of the shard at this place. What is not decided is left to the next leader, and nothing of it is
    /// said here any more.
    pub(crate) fn step_down(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        if self.streams[at].leadership().is_none() {
            return;
        }
        let shard = self.streams[at].shard();
        self.runtime.worker_context.serve(at, false);
        self.deferred.forget(shard);
        self.install_rest(at, effects);
        self.leave_home(at, effects);
        for (transaction, context) in self.branches.end_all(shard) {
            self.leave_branch(at, transaction, context, effects);
        }
        let place = self.runtime.worker_context.place;
        let drawn = self.shared.replicas[at].store.clock();
        for transaction in self.streams.resign(at, &self.shared.in_doubt[at], drawn) {
            if transaction.coordinator() == place {
                self.runtime.forget_participants(transaction.sequence);
            }
        }
        self.streams.lose_participant(shard);
    }

    /// Goes on with recovering the shards that this node has been appointed to lead, and with what is in doubt there: on
    /// all of them together by as many keys as a step may.
    pub(crate) fn recover_active(&mut self, effects: &mut TwoPhaseCommitEffects) {
        let mut left = self.in_doubt_budget.left;
        let (first, all) = (self.streams.recovers_first(), self.streams.len());
        for (mut from, until) in [(first, all), (0, first)] {
            while let Some(at) = self.streams.next_active(from).filter(|at| *at < until) {
                self.resolve_decided(at, &mut left, effects);
                self.resolve_keys(at, &mut left, effects);
                self.recover(at, &mut left, effects);
                from = at + 1;
            }
        }
        if left == 0 {
            self.streams.rotate_recovery();
        }
        self.in_doubt_budget.left = left;
    }

    fn recover(&mut self, at: usize, left: &mut usize, effects: &mut TwoPhaseCommitEffects) {
        let stream = &self.streams[at];
        let Some(state) = stream.leadership().copied() else { return };
        if !state.is_recovering() && stream.in_doubt().are_locked() {
            return;
        }
        let is_through =
            stream.replay().length() >= state.inherited() && !stream.replay().is_blocked();
        // What a former lead left locked here has to be free.
        let is_free = self.runtime.worker_context.own[at].sessions.ending() == 0;
        if !state.has_begun() && is_through && is_free {
            self.begin_to_lead(at, effects);
        }
        if self.streams[at].has_begun()
            && self.lock_in_doubt(at, left, effects)
            && !state.is_recovered()
            && self.is_sealed(at)
        {
            self.streams[at].recover();
            let replica = &self.shared.replicas[at];
            if replica.recover(state.ballot()) {
                replica.install(state.ballot());
            }
            self.runtime.nudge_others(effects);
        }
        let replica = &self.shared.replicas[at];
        let state = self.streams[at].leadership().expect("seen above");
        if state.is_recovered() && !state.serves() && replica.is_recovered(state.ballot()) {
            let (shard, ballot) = (replica.shard, state.ballot());
            self.assert_recovered(at);
            self.streams[at].serve();
            self.runtime.worker_context.serve(at, true);
            effects.observe(|| TwoPhaseCommitObservation::Serves { shard, ballot });
        }
        self.report(effects);
    }

    /// Can nothing of a former leadership be decided any more that this one has not inherited (rules P7 and P8)?
    pub(crate) fn is_sealed(&self, at: usize) -> bool {
        self.streams[at].leadership().is_some_and(LeaderState::is_sealed)
            || self.options().faults.has(TwoPhaseCommitPlantedBug::ServeUnsealed)
    }

    /// All that was inherited of the stream at this place is decided and in the store. An entry of this leadership follows
    /// at once, with or without records: it seals what is before it.
    fn begin_to_lead(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let now = self.runtime.worker_context.now.get();
        self.streams.begin(at, now, &self.shared.replicas[at]);
        let stream = &self.streams[at];
        let shard = stream.shard();
        for (transaction, branch) in stream.in_doubt().iter() {
            let clock = branch.clock();
            effects.observe(|| TwoPhaseCommitObservation::Recovered { transaction, shard, clock });
        }
    }

    /// What is prepared on the shard at this place, and not resolved, is locked before the shard is served, and an entry of
    /// this leadership is durable (rule P7).
    fn assert_recovered(&self, at: usize) {
        let (stream, shard) = (&self.streams[at], self.streams[at].shard());
        assert!(
            self.is_sealed(at),
            "P7: {shard} is served before an entry of its leader is durable"
        );
        assert!(
            self.shared.in_doubt[at].is_complete(stream.log().since()),
            "P7: {shard} is served before all workers have registered what is in doubt there"
        );
        let ignores = self.ignores_undecided();
        for (transaction, branch) in stream.in_doubt().iter() {
            assert!(
                branch.is_locked() || ignores,
                "P7: {shard} is served, and {transaction} is in doubt there without its locks"
            );
        }
    }

    /// Reports to the manager how closed epochs ended on the shards that this node leads. No outcome here depends on that: what
    /// counts is what the streams have, whichever epoch it is from, and so nothing is ever left hanging. It is said when the
    /// shard is served: by then nothing of a former leadership can follow.
    fn report(&mut self, effects: &mut TwoPhaseCommitEffects) {
        let Some(configuration) = &self.configuration else { return };
        if self.runtime.worker_context.place.worker != REPORTER {
            return;
        }
        let serving = self.streams.led().map(ShardStream::log).filter(|log| log.serves());
        let led = serving.map(|log| (log.shard(), log.ballot()));
        self.reported.report(configuration, led, effects);
    }

    /// Asserts that this node holds its lease while it acts as the leader of a shard (rule P6).
    pub(crate) fn act_as_leader(&mut self, at: usize, effects: &mut TwoPhaseCommitEffects) {
        let now = self.runtime.worker_context.now.get();
        assert!(
            self.holds_lease(now),
            "P6: {} acts as a leader at {now}, and its lease ended at {}",
            self.runtime.worker_context.place,
            self.lease_end
        );
        let log = self.streams[at].log();
        let (shard, ballot) = (log.shard(), log.ballot());
        effects.observe(|| TwoPhaseCommitObservation::Acted { shard, ballot });
    }
}
