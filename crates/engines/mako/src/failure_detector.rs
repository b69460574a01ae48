//! The nodes from which this worker has received nothing for a while (`docs/recovery.md`).
//!
//! What a coordinator has in flight on a shard blocks that shard's watermark, and only the end of the epoch resolves it
//! (rule M3). A leader that is blocked by a coordinator that does not answer does not wait until the manager has
//! declared its node dead: it asks for the end of the epoch at once. A wrong suspicion costs an epoch, and the blocked
//! transactions; no node loses a leadership by it. A node that was suspected and sends again is slow, or far, and
//! gets more time from then on.

use shoal_cluster::manager::Configuration;
use shoal_engine::execution::sequences;
use shoal_engine::transaction_id::TransactionId;
use shoal_types::{Epoch, NodeId, ShardId, Time};
use std::time::Duration;

/// The time of the last message from each other node.
///
/// Invariants: no end is asked for of an epoch that is still to come; and a node's patience is bounded.
#[derive(Debug)]
pub(super) struct FailureDetector {
    peers: Vec<MonitoredPeer>,
    /// Since when this worker steps without a break: before, it may have learned no node for a reason of its own.
    awake_since: Time,
    stepped_at: Time,
    /// The last epoch whose end was asked for.
    asked: Epoch,
    /// The last epoch in which a wait for another shard was too long, and that shard: something may be kept somewhere that goes
    /// only with the epoch.
    unanswered: Option<(Epoch, ShardId)>,
}

#[derive(Debug, Clone, Copy)]
struct MonitoredPeer {
    last_message: Time,
    /// The transactions with a lower number are of a former process, or it is dead.
    first: u64,
    /// How many times as long as others the peer may be silent.
    patience: u32,
    /// When that was last found to be too little.
    wronged_at: Time,
    /// The peer was suspected since its last message.
    suspected: bool,
    /// It leads a shard, by the last configuration.
    leads: bool,
}

impl MonitoredPeer {
    /// One from which nothing has arrived.
    const NEW: MonitoredPeer = MonitoredPeer {
        last_message: Time::ZERO,
        first: 0,
        patience: 1,
        wronged_at: Time::ZERO,
        suspected: false,
        leads: false,
    };
}

/// Most that a slow peer is given, and how long it is remembered to be slow.
const PATIENCE_MAX: u32 = 16;
const WRONG_FOR: Duration = Duration::from_secs(60);

impl FailureDetector {
    pub(super) fn new(nodes: usize) -> FailureDetector {
        FailureDetector {
            peers: vec![MonitoredPeer::NEW; nodes],
            awake_since: Time::ZERO,
            stepped_at: Time::ZERO,
            asked: Epoch(0),
            unanswered: None,
        }
    }

    /// A step begins. What waits for silence looks twice before it is reached.
    pub(super) fn awake(&mut self, now: Time, patience: Duration) {
        if self.stepped_at + patience * 3 / 4 < now {
            self.awake_since = now;
        }
        self.stepped_at = now;
    }

    /// Something comes from a node, of which so long a silence would have been suspicious: if `waits` says that
    /// something was in flight for it since its last message. Where nothing is, no node has to send.
    pub(super) fn on_message(
        &mut self,
        from: NodeId,
        now: Time,
        patience: Duration,
        waits: impl FnOnce(Time) -> bool,
    ) {
        let Some(peer) = self.peers.get_mut(from.0 as usize) else { return };
        let was_received = peer.last_message > Time::ZERO && peer.last_message >= self.awake_since;
        let late = was_received && peer.last_message + patience * peer.patience < now;
        if std::mem::take(&mut peer.suspected) || late && waits(peer.last_message) {
            peer.patience = PATIENCE_MAX.min(peer.patience * 2);
            peer.wronged_at = now;
        } else if peer.patience > 1 && peer.wronged_at + WRONG_FOR < now {
            // By halves: one that is far stays far.
            (peer.patience, peer.wronged_at) = (peer.patience / 2, now);
        }
        peer.last_message = now;
    }

    /// May the end of this epoch still be asked for?
    pub(super) fn may_ask(&self, open: Epoch) -> bool {
        self.asked < open
    }

    /// The end of this epoch is asked for.
    pub(super) fn ask(&mut self, open: Epoch) {
        self.asked = open;
    }

    /// A wait for this shard was too long in this epoch.
    pub(super) fn is_unanswered(&mut self, open: Epoch, shard: ShardId) {
        self.unanswered = Some((open, shard));
    }

    /// The shard for which a wait was too long in this epoch, if one was.
    pub(super) fn unanswered_by(&self, open: Epoch) -> Option<ShardId> {
        self.unanswered.filter(|(epoch, _)| *epoch >= open).map(|(_, shard)| shard)
    }

    /// A node is suspected: a later message shows that this was wrong.
    pub(super) fn suspect(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(node.0 as usize) {
            peer.suspected = true;
        }
    }

    /// From when on a node counts as silent, if nothing comes from it.
    pub(super) fn silent_at(&self, node: NodeId, patience: Duration) -> Time {
        let peer = self.peers.get(node.0 as usize);
        peer.map_or(Time::MAX, |it| it.last_message.max(self.awake_since) + patience * it.patience)
    }

    /// Asserts the invariants above, while this epoch is open.
    pub(super) fn assert_invariants(&self, open: Epoch) {
        let unanswered = self.unanswered.map_or(Epoch(0), |(epoch, _)| epoch);
        let last = self.asked.max(unanswered);
        assert!(last <= open, "M3: the end of {last} is asked for, and {open} is open");
        let patience = self.peers.iter().map(|peer| peer.patience);
        debug_assert!(patience.clone().all(|it| (1..=PATIENCE_MAX).contains(&it)), "{patience:?}");
    }

    /// Is a node silent that was taken for gone?
    pub(super) fn is_silent(&self, node: NodeId, now: Time, patience: Duration) -> bool {
        let suspected = self.peers.get(node.0 as usize).is_some_and(|peer| peer.suspected);
        suspected && self.silent_at(node, patience) <= now
    }

    /// How many times as long as others a node may take to answer.
    pub(super) fn patience(&self, node: NodeId) -> u32 {
        self.peers.get(node.0 as usize).map_or(1, |peer| peer.patience)
    }

    /// From when on the coordinator of a transaction counts as gone, if nothing comes from it.
    pub(super) fn gone_at(&self, transaction: TransactionId, patience: Duration) -> Time {
        match self.is_gone(transaction) {
            true => Time::ZERO,
            false => self.silent_at(transaction.node, patience),
        }
    }

    /// Is the coordinator of a transaction dead, or does it live anew, as far as the configuration says?
    pub(super) fn is_gone(&self, transaction: TransactionId) -> bool {
        let peer = self.peers.get(transaction.node.0 as usize);
        peer.is_some_and(|peer| transaction.sequence < peer.first)
    }

    pub(super) fn configured(&mut self, configuration: &Configuration) {
        // Nodes may have been added; the number of nodes never decreases.
        let nodes = self.peers.len().max(configuration.nodes.len());
        self.peers.resize(nodes, MonitoredPeer::NEW);
        let nodes = (0..).map(NodeId).zip(&configuration.nodes);
        for (peer, (node, standing)) in self.peers.iter_mut().zip(nodes) {
            let first = match standing.alive {
                true => sequences::first(standing.incarnation),
                false => u64::MAX,
            };
            let leads = configuration.shards.iter().any(|shard| shard.leader == node);
            if peer.first != first {
                // It was suspected rightly.
                (peer.suspected, peer.patience) = (false, 1);
            } else if peer.leads != leads {
                // A leader sends at fixed times, and a node that leads nothing only when it has something to send.
                peer.patience = 1;
            }
            (peer.first, peer.leads) = (first, leads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::manager::{Incarnation, ManagerOptions, StateMachine};
    use shoal_cluster::topology::Topology;
    use shoal_types::WorkerId;
    use std::sync::Arc;

    const MS: Duration = Duration::from_millis(1);
    const PATIENCE: Duration = Duration::from_millis(40);
    const PEER: NodeId = NodeId(1);

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// In the peer's first process.
    fn transaction() -> TransactionId {
        TransactionId { node: PEER, worker: WorkerId(0), sequence: 7 }
    }

    /// This worker steps every 10 ms, until then.
    fn awake(failure_detector: &mut FailureDetector, from: u64, until: u64) {
        (from..=until).step_by(10).for_each(|ms| failure_detector.awake(at(ms), PATIENCE));
    }

    #[test]
    fn a_node_whose_messages_arrive_is_not_suspected() {
        let mut failure_detector = FailureDetector::new(2);
        awake(&mut failure_detector, 0, 200);
        failure_detector.on_message(PEER, at(200), PATIENCE, |_| true);
        assert_eq!(failure_detector.gone_at(transaction(), PATIENCE), at(200) + PATIENCE);
        failure_detector.on_message(PEER, at(230), PATIENCE, |_| true);
        assert_eq!(failure_detector.gone_at(transaction(), PATIENCE), at(230) + PATIENCE);
    }

    #[test]
    fn who_stood_still_blames_nobody() {
        let mut failure_detector = FailureDetector::new(2);
        awake(&mut failure_detector, 0, 100);
        failure_detector.on_message(PEER, at(100), PATIENCE, |_| true);
        failure_detector.awake(at(500), PATIENCE);
        assert_eq!(failure_detector.gone_at(transaction(), PATIENCE), at(500) + PATIENCE);
        failure_detector.on_message(PEER, at(501), PATIENCE, |_| true);
        assert_eq!(
            failure_detector.gone_at(transaction(), PATIENCE),
            at(501) + PATIENCE,
            "nor later"
        );
    }

    #[test]
    fn who_was_taken_for_gone_is_given_more_time_though_nothing_waits_by_then() {
        let mut failure_detector = FailureDetector::new(2);
        failure_detector.on_message(PEER, at(100), PATIENCE, |_| false);
        failure_detector.suspect(PEER);
        failure_detector.on_message(PEER, at(200), PATIENCE, |_| false);
        assert_eq!(failure_detector.gone_at(transaction(), PATIENCE), at(200) + 2 * PATIENCE);
    }

    #[test]
    fn who_has_nothing_to_say_may_be_silent() {
        let mut failure_detector = FailureDetector::new(2);
        awake(&mut failure_detector, 0, 500);
        failure_detector.on_message(PEER, at(100), PATIENCE, |_| false);
        failure_detector.on_message(PEER, at(500), PATIENCE, |_| false);
        assert_eq!(failure_detector.gone_at(transaction(), PATIENCE), at(500) + PATIENCE);
    }

    #[test]
    fn who_was_suspected_wrongly_is_given_more_time_for_a_while() {
        let mut failure_detector = FailureDetector::new(2);
        awake(&mut failure_detector, 0, 100);
        failure_detector.on_message(PEER, at(100), PATIENCE, |_| true);
        awake(&mut failure_detector, 110, 200);
        failure_detector.on_message(PEER, at(200), PATIENCE, |_| true);
        assert_eq!(failure_detector.gone_at(transaction(), PATIENCE), at(200) + 2 * PATIENCE);
        let later = at(201) + WRONG_FOR;
        awake(&mut failure_detector, 210, later.0 / 1_000_000);
        failure_detector.peers[PEER.0 as usize].last_message = Time(later.0 - 1);
        failure_detector.on_message(PEER, later, PATIENCE, |_| true);
        assert_eq!(failure_detector.gone_at(transaction(), PATIENCE), later + PATIENCE);
    }

    fn configuration() -> Configuration {
        let topology = Arc::new(Topology::symmetric(1, 2, 1, 0, 1));
        let machine = StateMachine::new(topology, ManagerOptions::default());
        Configuration::clone(machine.configuration())
    }

    #[test]
    fn a_node_that_begins_to_lead_is_given_no_more_time_than_others() {
        let (mut configuration, mut failure_detector) = (configuration(), FailureDetector::new(2));
        configuration.shards[1].leader = NodeId(0);
        failure_detector.configured(&configuration);
        for ms in [100, 200] {
            awake(&mut failure_detector, ms - 100, ms);
            failure_detector.on_message(PEER, at(ms), PATIENCE, |_| true);
        }
        assert_eq!(failure_detector.patience(PEER), 2);
        failure_detector.configured(&configuration);
        assert_eq!(failure_detector.patience(PEER), 2);
        configuration.shards[1].leader = PEER;
        failure_detector.configured(&configuration);
        assert_eq!(failure_detector.patience(PEER), 1);
    }

    #[test]
    fn what_a_former_process_has_left_hangs_at_once() {
        let mut configuration = configuration();
        let mut failure_detector = FailureDetector::new(2);
        awake(&mut failure_detector, 0, 100);
        failure_detector.on_message(PEER, at(100), PATIENCE, |_| true);
        configuration.nodes[1].incarnation = Incarnation(1);
        failure_detector.configured(&configuration);
        assert_eq!(failure_detector.gone_at(transaction(), PATIENCE), at(100) + PATIENCE);
        configuration.nodes[1].incarnation = Incarnation(2);
        failure_detector.configured(&configuration);
        assert_eq!(failure_detector.gone_at(transaction(), PATIENCE), Time::ZERO);
        let new = TransactionId { sequence: sequences::first(Incarnation(2)), ..transaction() };
        assert_eq!(failure_detector.gone_at(new, PATIENCE), at(100) + PATIENCE);
        configuration.nodes[1].alive = false;
        failure_detector.configured(&configuration);
        assert_eq!(failure_detector.gone_at(new, 5 * MS), Time::ZERO, "declared dead");
    }
}
