//! What is written down while a shard fails: when which transactions were told, how far the recovery
//! was when, and what became of transactions that were certified.

use super::watched::{ShardSet, Touched};
use crate::simulation::Sighting;
use shoal_cluster::manager::{Applied, EpochEnd};
use shoal_engine::{TransactionId, WorkerPlace};
use shoal_mako::MakoObservation;
use shoal_types::{Epoch, Error, NodeId, ShardId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Throughput is counted over so long.
pub(super) const BUCKET: Duration = Duration::from_millis(20);

/// What a transaction touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransactionClass {
    /// Healthy shards only.
    Healthy,
    /// The failed shard only.
    Failed,
    /// The failed shard and healthy ones.
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

/// A step of the recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RecoveryStep {
    /// The dead leader's lease is out.
    LeaseOut,
    /// Another leader is appointed, and the next epoch begins.
    Appointed,
    /// It has prepared all its streams.
    Prepared,
    /// The end of the last epoch is durable in all of them, and is reported.
    EndDurable,
    /// The FVW is agreed on.
    Final,
    /// The new leader has settled the epoch.
    Settled,
    /// All its workers serve.
    Serves,
    /// A transaction on the failed shard is told that began after the failure.
    Told,
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
        RecoveryStep::Told,
    ];

    /// In words, at the head of a column.
    pub(super) fn name(self) -> &'static str {
        match self {
            RecoveryStep::LeaseOut => "lease out",
            RecoveryStep::Appointed => "appointed",
            RecoveryStep::Prepared => "prepared",
            RecoveryStep::EndDurable => "end durable",
            RecoveryStep::Final => "FVW",
            RecoveryStep::Settled => "settled",
            RecoveryStep::Serves => "serves",
            RecoveryStep::Told => "first commit",
        }
    }

    /// Every worker of the new leader does it for itself: the last counts.
    fn is_of_workers(self) -> bool {
        matches!(self, RecoveryStep::Prepared | RecoveryStep::Settled | RecoveryStep::Serves)
    }
}

/// A shard has failed.
#[derive(Debug, Clone, Copy)]
struct FailedShard {
    at: Time,
    /// Who led it.
    leader: NodeId,
    /// Who leads it now.
    heir: Option<NodeId>,
    /// The first epoch that began after the failure.
    epoch: Option<Epoch>,
}

/// What became of certified transactions, of those whose coordinator lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fates {
    /// Certified before the failure, and no client told yet.
    pub in_flight: u64,
    /// Rolled back, of those.
    pub in_flight_rolled: u64,
    /// Certified between the failure and the moment at which the failed shard served again.
    pub certified: u64,
    /// Rolled back, of those.
    pub certified_rolled: u64,
    /// Certified before the failure by the coordinator that died: no client is told.
    pub orphans: u64,
}

/// Which transactions were told when, while a shard failed and recovered.
#[derive(Debug)]
pub(super) struct FailureRecord {
    shard: ShardId,
    shards: u32,
    /// By when they were told, and by class.
    told: Vec<[u64; 3]>,
    failed: Option<FailedShard>,
    steps: BTreeMap<RecoveryStep, Time>,
    /// When each transaction was certified that no client was told of.
    open: BTreeMap<TransactionId, Time>,
    fates: Fates,
    hung: Option<usize>,
    /// How often clients were told that nothing happened, and how often that the outcome is unknown.
    pub aborted: u64,
    pub unknown: u64,
}

impl FailureRecord {
    /// An empty one, of a cluster of `shards` in which `shard` will fail.
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

    /// The shard's leader fails now.
    pub(super) fn fails(&mut self, at: Time, leader: NodeId) {
        let orphans = self.open.keys().filter(|it| it.node == leader).count();
        self.fates.orphans = orphans as u64;
        self.fates.in_flight = (self.open.len() - orphans) as u64;
        self.failed = Some(FailedShard { at, leader, heir: None, epoch: None });
    }

    /// A transaction that began then is told as committed.
    pub(super) fn told(&mut self, now: Time, began: Time, touched: Touched) {
        let bucket = (now.0 / BUCKET.as_nanos() as u64) as usize;
        if self.told.len() <= bucket {
            self.told.resize(bucket + 1, [0; 3]);
        }
        let class = TransactionClass::of(touched.shards, self.shard);
        self.told[bucket][class as usize] += 1;
        if class == TransactionClass::Failed && self.failed.is_some_and(|it| began > it.at) {
            self.reach(RecoveryStep::Told, now);
        }
    }

    /// A transaction has failed.
    pub(super) fn not_told(&mut self, error: &Error) {
        match error {
            Error::Unknown(_) => self.unknown += 1,
            Error::Aborted(_) | Error::Rejected(_) => self.aborted += 1,
        }
    }

    /// Engines or managers have done something.
    pub(super) fn see(&mut self, now: Time, sight: &Sighting<'_, MakoObservation>) {
        match sight {
            Sighting::Observed(place, observation) => {
                self.follow_fate(now, observation);
                self.follow_heir(now, *place, observation);
            }
            Sighting::Applied(applied) => self.follow_managers(now, applied),
        }
    }

    fn follow_fate(&mut self, now: Time, observation: &MakoObservation) {
        match observation {
            MakoObservation::Certified { transaction, .. } => {
                self.open.insert(*transaction, now);
                self.fates.certified += u64::from(self.is_out());
            }
            MakoObservation::Told { transaction, .. } => {
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

    fn follow_heir(&mut self, now: Time, place: WorkerPlace, observation: &MakoObservation) {
        let Some(FailedShard { heir: Some(heir), epoch, .. }) = self.failed else { return };
        if place.node != heir {
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
                failed.heir = Some(ballot.node);
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
        // Later epochs end, too: what belongs to this failure is over when the shard serves.
        let again = step.is_of_workers() && !self.steps.contains_key(&RecoveryStep::Told);
        let at = self.steps.entry(step).or_insert(now);
        if again {
            *at = now;
        }
    }

    /// Has the shard failed and not served yet?
    pub(super) fn is_out(&self) -> bool {
        self.failed.is_some() && !self.steps.contains_key(&RecoveryStep::Serves)
    }

    /// The node that leads the failed shard now.
    pub(super) fn heir(&self) -> Option<NodeId> {
        self.failed?.heir
    }

    /// When the shard failed.
    pub(super) fn failed_at(&self) -> Time {
        self.failed.map_or(Time::ZERO, |it| it.at)
    }

    /// How long after the failure this was reached.
    pub(super) fn step(&self, step: RecoveryStep) -> Option<Duration> {
        self.steps.get(&step).map(|at| *at - self.failed_at())
    }

    /// Healthy shards on which something was left hanging: its coordinator died after it had drawn a
    /// clock there, and the shard's watermark stood still until the epoch was over.
    pub(super) fn hung(&self) -> usize {
        self.hung.unwrap_or(0)
    }

    /// What became of certified transactions.
    pub(super) fn fates(&self) -> Fates {
        self.fates
    }

    /// How many transactions of a class were told in each bucket from `from` to `until`.
    pub(super) fn buckets(&self, class: TransactionClass, from: Time, until: Time) -> Vec<u64> {
        let bucket = BUCKET.as_nanos() as u64;
        let all = from.0.div_ceil(bucket)..until.0 / bucket;
        all.map(|at| self.told.get(at as usize).map_or(0, |it| it[class as usize])).collect()
    }
}
