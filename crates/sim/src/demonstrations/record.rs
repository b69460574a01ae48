//! The record of a run in which a shard fails: when transactions were acknowledged, when each step of the
//! recovery was reached, and what became of certified transactions.

use super::watched::{ShardSet, Touched};
use crate::simulation::WatchedEvent;
use shoal_cluster::manager::{Applied, EpochEnd};
use shoal_engine::{TransactionId, WorkerPlace};
use shoal_mako::MakoObservation;
use shoal_types::{Epoch, Error, NodeId, ShardId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Throughput is counted in buckets of this length.
pub(super) const BUCKET: Duration = Duration::from_millis(20);

/// The class of a transaction, by the shards that it touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransactionClass {
    /// The transaction touches healthy shards only.
    Healthy,
    /// The transaction touches the failed shard only.
    Failed,
    /// The transaction touches the failed shard and healthy ones.
    Across,
}

impl TransactionClass {
    pub(super) const ALL: [TransactionClass; 3] =
        [TransactionClass::Healthy, TransactionClass::Failed, TransactionClass::Across];

    fn of(touched: ShardSet, failed: ShardId) -> TransactionClass {
        match (touched.has(failed), touched.len()) {
            (false, _) => TransactionClass::Healthy,
            (true, 1) => TransactionClass::Failed,
            (true, _) => TransactionClass::Across,
        }
    }
}

/// A step of the recovery, up to when all steps before it have been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RecoveryStep {
    /// The lease of the dead leader has run out.
    LeaseOut,
    /// Another leader is appointed, and the next epoch begins.
    Appointed,
    /// The new leader has prepared all its streams.
    Prepared,
    /// The end of the last epoch is durable in all streams, and is reported.
    EndDurable,
    /// The manager has all reports, and the FVW of the ended epoch is final.
    Final,
    /// The new leader has settled the epoch.
    Settled,
    /// All workers of the new leader serve.
    Serves,
    /// A transaction on the failed shard that began after the failure is acknowledged.
    FirstCommit,
}

impl RecoveryStep {
    pub(super) const ALL: [RecoveryStep; 8] = [
        RecoveryStep::LeaseOut,
        RecoveryStep::Appointed,
        RecoveryStep::Prepared,
        RecoveryStep::EndDurable,
        RecoveryStep::Final,
        RecoveryStep::Settled,
        RecoveryStep::Serves,
        RecoveryStep::FirstCommit,
    ];

    /// The name of the step, for the head of a column.
    pub(super) fn name(self) -> &'static str {
        match self {
            RecoveryStep::LeaseOut => "lease out",
            RecoveryStep::Appointed => "appointed",
            RecoveryStep::Prepared => "prepared",
            RecoveryStep::EndDurable => "end durable",
            RecoveryStep::Final => "FVW",
            RecoveryStep::Settled => "settled",
            RecoveryStep::Serves => "serves",
            RecoveryStep::FirstCommit => "first commit",
        }
    }

    /// Whether every worker of the new leader takes this step by itself: then the last one counts.
    fn is_of_workers(self) -> bool {
        matches!(self, RecoveryStep::Prepared | RecoveryStep::Settled | RecoveryStep::Serves)
    }
}

/// A shard has failed, and these are the facts of its recovery.
#[derive(Debug, Clone, Copy)]
struct FailedShard {
    at: Time,
    /// The leader that was crashed, or cut off.
    leader: NodeId,
    /// The node that leads the shard now.
    successor: Option<NodeId>,
    /// The first epoch that began after the failure.
    epoch: Option<Epoch>,
}

/// What became of certified transactions whose coordinator did not fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fates {
    /// Certified before the failure, and not acknowledged when it happened.
    pub in_flight: u64,
    /// The number of those that were rolled back.
    pub in_flight_rolled: u64,
    /// Certified between the failure and the moment at which the failed shard served again.
    pub certified: u64,
    /// The number of those that were rolled back.
    pub certified_rolled: u64,
    /// Certified before the failure by the coordinator that failed: they are acknowledged to no client.
    pub orphans: u64,
}

/// When transactions were acknowledged while a shard failed and recovered.
#[derive(Debug)]
pub(super) struct FailureRecord {
    shard: ShardId,
    shards: u32,
    /// Acknowledged transactions by bucket and class.
    told: Vec<[u64; 3]>,
    failed: Option<FailedShard>,
    steps: BTreeMap<RecoveryStep, Time>,
    /// Certified transactions that are not acknowledged, with the time at which each was certified.
    open: BTreeMap<TransactionId, Time>,
    fates: Fates,
    hung: Option<usize>,
    /// How often clients learned that a transaction had no effect, and how often that its outcome is
    /// unknown.
    pub aborted: u64,
    pub unknown: u64,
}

impl FailureRecord {
    /// An empty record of a cluster of `shards` shards in which `shard` will fail.
    pub(super) fn new(shards: u32, shard: ShardId) -> FailureRecord {
        FailureRecord {
            shard,
            shards,
            told: Vec::new(),
            failed: None,
            steps: BTreeMap::new(),
            open: BTreeMap::new(),
            fates: Fates::default(),
            hung: None,
            aborted: 0,
            unknown: 0,
        }
    }

    /// The shard's leader fails at `at`.
    pub(super) fn fails(&mut self, at: Time, leader: NodeId) {
        let orphans = self.open.keys().filter(|it| it.node == leader).count();
        self.fates.orphans = orphans as u64;
        self.fates.in_flight = (self.open.len() - orphans) as u64;
        self.failed = Some(FailedShard { at, leader, successor: None, epoch: None });
    }

    /// A transaction that began at `began` is acknowledged as committed.
    pub(super) fn told(&mut self, now: Time, began: Time, touched: Touched) {
        let bucket = (now.0 / BUCKET.as_nanos() as u64) as usize;
        if self.told.len() <= bucket {
            self.told.resize(bucket + 1, [0; 3]);
        }
        let class = TransactionClass::of(touched.shards, self.shard);
        self.told[bucket][class as usize] += 1;
        if class == TransactionClass::Failed && self.failed.is_some_and(|it| began > it.at) {
            self.reach(RecoveryStep::FirstCommit, now);
        }
    }

    /// A transaction has failed with this error.
    pub(super) fn not_told(&mut self, error: &Error) {
        match error {
            Error::Unknown(_) => self.unknown += 1,
            Error::Aborted(_) | Error::Rejected(_) => self.aborted += 1,
        }
    }

    /// Records a fact about engines or managers.
    pub(super) fn see(&mut self, now: Time, sight: &WatchedEvent<'_, MakoObservation>) {
        match sight {
            WatchedEvent::Observed(place, observation) => {
                self.follow_outcome(now, observation);
                self.follow_successor(now, *place, observation);
            }
            WatchedEvent::Applied(applied) => self.follow_managers(now, applied),
        }
    }

    fn follow_outcome(&mut self, now: Time, observation: &MakoObservation) {
        match observation {
            MakoObservation::Certified { transaction, .. } => {
                self.open.insert(*transaction, now);
                self.fates.certified += u64::from(self.is_out());
            }
            MakoObservation::Acknowledged { transaction, .. } => {
                self.open.remove(transaction);
            }
            MakoObservation::RolledBack { transaction, .. } => {
                let (Some(certified), Some(failed)) = (self.open.remove(transaction), self.failed)
                else {
                    return;
                };
                match certified <= failed.at {
                    true => self.fates.in_flight_rolled += 1,
                    false => self.fates.certified_rolled += 1,
                }
            }
            _ => {}
        }
    }

    fn follow_successor(&mut self, now: Time, place: WorkerPlace, observation: &MakoObservation) {
        let Some(FailedShard { successor: Some(successor), epoch, .. }) = self.failed else {
            return;
        };
        if place.node != successor {
            return;
        }
        let closed = |it: Epoch| epoch.is_some_and(|begun| it < begun);
        match observation {
            MakoObservation::Led { shard, .. } if *shard == self.shard => {
                self.reach(RecoveryStep::Prepared, now);
            }
            MakoObservation::Reported { shard, epoch, .. }
                if *shard == self.shard && closed(*epoch) =>
            {
                self.reach(RecoveryStep::EndDurable, now);
            }
            MakoObservation::Settled { watermark } if closed(watermark.epoch()) => {
                self.reach(RecoveryStep::Settled, now);
            }
            MakoObservation::Serves { shard, .. } if *shard == self.shard => {
                self.reach(RecoveryStep::Serves, now);
            }
            _ => {}
        }
    }

    fn follow_managers(&mut self, now: Time, applied: &Applied) {
        let Some(failed) = &mut self.failed else { return };
        match applied {
            Applied::Died(node) if *node == failed.leader => {
                self.reach(RecoveryStep::LeaseOut, now);
            }
            Applied::Raised(epoch) => {
                failed.epoch.get_or_insert(*epoch);
            }
            Applied::Appointed { shard, ballot } if *shard == self.shard => {
                failed.successor = Some(ballot.node);
                self.reach(RecoveryStep::Appointed, now);
            }
            Applied::Final(watermark)
                if failed.epoch.is_some_and(|begun| watermark.epoch() < begun) =>
            {
                let hangs = |end: &EpochEnd| *end != EpochEnd::Whole;
                let healthy = (0..self.shards).map(ShardId).filter(|it| *it != self.shard);
                let hung = healthy.filter(|it| hangs(watermark.of(*it))).count();
                self.hung.get_or_insert(hung);
                self.reach(RecoveryStep::Final, now);
            }
            _ => {}
        }
    }

    fn reach(&mut self, step: RecoveryStep, now: Time) {
        // Later epochs end too: the recovery is complete once the shard serves.
        let again = step.is_of_workers() && !self.steps.contains_key(&RecoveryStep::FirstCommit);
        let at = self.steps.entry(step).or_insert(now);
        if again {
            *at = now;
        }
    }

    /// Whether the shard has failed and does not serve again yet.
    pub(super) fn is_out(&self) -> bool {
        self.failed.is_some() && !self.steps.contains_key(&RecoveryStep::Serves)
    }

    /// The node that leads the failed shard now.
    pub(super) fn successor(&self) -> Option<NodeId> {
        self.failed?.successor
    }

    /// The time at which the shard failed; 0 while none has.
    pub(super) fn failed_at(&self) -> Time {
        self.failed.map_or(Time::ZERO, |it| it.at)
    }

    /// The time from the failure to this step of the recovery.
    pub(super) fn step(&self, step: RecoveryStep) -> Option<Duration> {
        self.steps.get(&step).map(|at| *at - self.failed_at())
    }

    /// The number of healthy shards that the failure blocked: a coordinator died after it had drawn a clock
    /// there, and the shard's watermark stood still until the epoch ended.
    pub(super) fn hung(&self) -> usize {
        self.hung.unwrap_or(0)
    }

    /// What became of certified transactions.
    pub(super) fn fates(&self) -> Fates {
        self.fates
    }

    /// The acknowledged transactions of a class in each bucket from `from` to `until`.
    pub(super) fn buckets(&self, class: TransactionClass, from: Time, until: Time) -> Vec<u64> {
        let bucket = BUCKET.as_nanos() as u64;
        let all = from.0.div_ceil(bucket)..until.0 / bucket;
        all.map(|at| self.told.get(at as usize).map_or(0, |it| it[class as usize])).collect()
    }
}
