//! Coverage points: rare paths that a long run has to reach. One that it never reaches means that the simulation
//! does not look where it should. An engine has others of its own, which its workers count (`Subject::PATHS`).

use crate::metrics::Metrics;
use crate::recovery::ShardRecoveryStage;
use crate::seed_ranges::{
    ACCEPTED_LOSS_SEEDS, ALL_ON_DISKS, BAD_DISKS_FROM, DISK_SEEDS, FULL_DISKS_FROM,
    OLDER_DISKS_FROM, UNREADABLE_DISKS_FROM,
};
use shoal_types::{Clock, ShardId, Stamp};
use std::ops::{AddAssign, Range};

/// Coverage points that only scenarios reach so far, in `crates/node/tests/node/recovery/former_leaders.rs`:
/// seeds are not required to reach them.
pub const BEYOND_SEEDS: &[&str] = &["old version left out of a copy"];

/// Coverage points of engines that certify with stamps and settle epochs, and of recoveries of streams.
pub(crate) const OF_STREAMS: &[&str] = &[
    "clock given up",
    "depends on a foreign shard",
    "epoch settled",
    "heartbeat appended",
    "held up by silence",
    "lost where a shard ended",
    "old version left out of a copy",
    "older version after newer",
    "read-only certified",
    "request sent again",
    "rolled back with its epoch",
    "second failure: end appended",
    "second failure: final, not serving",
    "second failure: lease out",
    "second failure: prepared",
    "second failure: reported",
    "stamp collapsed",
    "stream prepared by a new leader",
    "undecided version in a copy",
    "undecided version installed",
    "undecided version met",
    "worker acts within a step",
];

/// Coverage points of engines whose shards may lose a majority.
pub const NO_LOSS: &[&str] = &["majority of a shard lost", "accepted loss, and return with disks"];

/// Coverage points of seeds whose nodes have disks, each with the seeds that may reach it. These seeds are not required to reach
/// others, nor others these.
pub(crate) const ON_DISKS: &[(&str, Range<u64>)] = &[
    ("power lost", ALL_ON_DISKS),
    ("checkpoint durable", ALL_ON_DISKS),
    ("begun with a checkpoint", ALL_ON_DISKS),
    ("crash while blocks are written", ALL_ON_DISKS),
    ("crash while a checkpoint is flushed", ALL_ON_DISKS),
    ("torn end cut", ALL_ON_DISKS),
    ("append refused, disk behind", ALL_ON_DISKS),
    ("records void without a snapshot", ALL_ON_DISKS),
    ("disk full", FULL_DISKS_FROM..DISK_SEEDS.end),
    ("disk failed", BAD_DISKS_FROM..DISK_SEEDS.end),
    ("older checkpoint used", BAD_DISKS_FROM..DISK_SEEDS.end),
    ("damaged disk of no use", BAD_DISKS_FROM..DISK_SEEDS.end),
    ("older image of a disk", OLDER_DISKS_FROM..DISK_SEEDS.end),
    ("disk not readable", UNREADABLE_DISKS_FROM..DISK_SEEDS.end),
    ("accepted loss, and return with disks", ACCEPTED_LOSS_SEEDS),
];

macro_rules! coverage {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// How often each rare path was reached.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Coverage {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Coverage {
            /// The name and count of each point.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($text, self.$name)),*].into_iter()
            }
        }

        impl AddAssign for Coverage {
            fn add_assign(&mut self, other: Coverage) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

coverage! {
    /// A coordinator sent a request again.
    resent = "request sent again",
    /// A client outside sent a request again.
    asked_again = "client asked again",
    /// A connection of a client outside was lost.
    connection_broken = "client's connection lost",
    /// A client repeated a call whose outcome it did not know.
    called_again = "unknown call asked for again",
    /// A message that had become irrelevant was dropped.
    dropped = "late message dropped",
    /// The network delivered a message twice.
    duplicated = "message duplicated",
    /// A message arrived before one that was sent earlier on the same link.
    reordered = "message reordered",
    /// A link was clogged while something was sent.
    clogged = "message held by a clog",
    /// A link lost all messages in one direction for a while.
    cut = "link cut",
    /// A worker took no events for a while, with its node alive.
    stalled = "worker stalled",
    /// Certification found that a row was locked, or had changed since it was read.
    conflict = "conflict",
    /// A retry budget was spent, or the engine refused a transaction.
    gave_up = "gave up",
    /// The engine refused for overload.
    refused = "refused for overload",
    /// A transaction touched several shards.
    cross_shard = "several shards",
    /// A transaction read a tombstone, and depends on the delete.
    tombstone = "tombstone read",
    /// A transaction depends on a shard that it does not write.
    dependency = "depends on a foreign shard",
    /// A stamp was collapsed to its bound.
    collapsed = "stamp collapsed",
    /// A clock was drawn and resolved without an install.
    given_up = "clock given up",
    /// A follower applied an older version after a newer one.
    thomas = "older version after newer",
    /// A transaction that writes nothing was certified.
    read_only = "read-only certified",
    /// An idle worker appended an entry without a piece.
    heartbeat = "heartbeat appended",
    /// A worker has settled an epoch.
    settled = "epoch settled",
    /// A workload rolled a transaction back itself.
    rolled_back = "rolled back on demand",
    /// A node crashed, with its memory lost or kept.
    crashed = "node crashed",
    /// A node lost its memory.
    lost = "memory lost",
    /// All nodes of a datacenter crashed.
    datacenter_lost = "datacenter lost",
    /// All workers of a node took no events for a while.
    paused = "node paused",
    /// A node was cut off from some others.
    parted = "node cut off",
    /// The managers' log decided nothing for a while.
    outage = "managers decide nothing",
    /// A manager stopped; it restarts with what its disk holds.
    manager_lost = "manager stopped",
    /// A clock broke its bounds.
    wild_clock = "clock beyond its bounds",
    /// A copy left out an uncommitted version below its cut.
    withheld = "old version left out of a copy",
    /// A node never came back.
    gone = "node gone for good",
    /// A step was interrupted within its work.
    interrupted = "step interrupted",
    /// Another worker acted within a worker's step.
    interleaved = "worker acts within a step",
    /// A replica lost its memory while only few others had what it had accepted.
    forgot_behind = "forgets what few have",
    /// A leader was cut off until its successor was cut off.
    diverged = "one leader back, the next cut off",
    /// A leader failed while a replica without memory was about to be sent copies.
    sender_struck = "leader fails while a copy begins",
    /// A shard lost a majority of its voters at once.
    majority_lost = "majority of a shard lost",
    /// A majority whose loss was accepted returned with its disks.
    majority_returned = "accepted loss, and return with disks",
    /// A transaction ended because a shard was unavailable, and its error names that shard.
    for_want_of_shard = "ended for want of a shard",
    /// A transaction ended because a version that it read is undecided.
    undecided = "undecided version met",
    /// A store had no room for a write.
    full = "database full",
    /// A stream began with a snapshot instead of its first entries.
    restored = "stream begun behind a snapshot",
    /// A copy carried an undecided version.
    carried_undecided = "undecided version in a copy",
    /// A new leader installed a version that could not be decided yet.
    inherited = "undecided version installed",
    /// A new leader prepared a stream.
    led = "stream prepared by a new leader",
    /// A transaction was rolled back with its epoch.
    rolled_back_with_epoch = "rolled back with its epoch",
    /// A transaction was reported rolled back before its epoch was settled.
    lost_early = "lost where a shard ended",
    /// An unresponsive node kept a shard from committing, and the end of the epoch was requested.
    held_up = "held up by silence",
    /// A second failure came when the lease of a failed leader had run out.
    interrupted_lease_out = "second failure: lease out",
    /// A second failure came when a new leader was appointed.
    interrupted_appointed = "second failure: appointed",
    /// A second failure came while the new leader prepared its streams.
    interrupted_preparing = "second failure: preparing",
    /// A second failure came when the new leader had prepared a stream.
    interrupted_prepared = "second failure: prepared",
    /// A second failure came when the end of an epoch was appended.
    interrupted_ended = "second failure: end appended",
    /// A second failure came when the end of an epoch was reported.
    interrupted_reported = "second failure: reported",
    /// A second failure came when the ends of the epoch were final, before the shard served.
    interrupted_final = "second failure: final, not serving",
    /// All nodes lost power at once.
    power_lost = "power lost",
    /// A checkpoint of a worker became durable.
    checkpoints = "checkpoint durable",
    /// A worker began with a checkpoint.
    restarts_from_checkpoints = "begun with a checkpoint",
    /// A process ended while blocks of a checkpoint were written.
    ended_in_blocks = "crash while blocks are written",
    /// A process ended while a checkpoint was to become durable.
    ended_in_finish = "crash while a checkpoint is flushed",
    /// A log ended in a group that was not whole.
    torn_ends = "torn end cut",
    /// Records stood behind a snapshot from a peer that no checkpoint had.
    void_streams = "records void without a snapshot",
    /// A replica did not take entries, since its disk was too far behind.
    refused_appends = "append refused, disk behind",
    /// A disk had no room.
    full_disks = "disk full",
    /// A write or a flush failed, and the process ended.
    failed_disks = "disk failed",
    /// A checkpoint was damaged, and an older one was used.
    older_checkpoints = "older checkpoint used",
    /// A log was damaged, and its node began without memory.
    damaged_disks = "damaged disk of no use",
    /// A node began with a disk as it was before its last process that was admitted.
    disks_put_back = "older image of a disk",
    /// A process did not begin, since a read failed.
    unreadable_disks = "disk not readable",
}

impl Coverage {
    /// A node that a recovery needs has crashed, at this stage of the recovery.
    pub fn interrupted(&mut self, stage: ShardRecoveryStage) {
        *match stage {
            ShardRecoveryStage::LeaseOut => &mut self.interrupted_lease_out,
            ShardRecoveryStage::Appointed => &mut self.interrupted_appointed,
            ShardRecoveryStage::Preparing => &mut self.interrupted_preparing,
            ShardRecoveryStage::Prepared => &mut self.interrupted_prepared,
            ShardRecoveryStage::Ended => &mut self.interrupted_ended,
            ShardRecoveryStage::Reported => &mut self.interrupted_reported,
            ShardRecoveryStage::Final => &mut self.interrupted_final,
        } += 1;
    }

    /// A transaction was certified with this stamp, as the shard `own` writes it; `writes` are the shards
    /// that it writes.
    pub fn certified(&mut self, own: ShardId, stamp: &Stamp, writes: &[(ShardId, Clock)]) {
        self.read_only += u64::from(writes.is_empty());
        let remote = stamp.as_ref().remote;
        let is_floor = |shard: ShardId| shard == ShardId::EVERY;
        self.collapsed += u64::from(remote.iter().any(|entry| is_floor(entry.shard)));
        let written = |shard: ShardId| writes.iter().any(|(other, _)| *other == shard);
        let foreign = |shard: ShardId, clock: Clock| {
            shard != own && !is_floor(shard) && !written(shard) && clock > Clock::ZERO
        };
        let depends = remote.iter().any(|entry| foreign(entry.shard, entry.clock));
        self.dependency += u64::from(depends);
    }

    /// Takes over the counts that metrics have already.
    pub fn take_metrics(&mut self, metrics: &Metrics) {
        let Metrics { traffic, work, engines, outcomes, .. } = metrics;
        self.resent = engines.get("resent");
        self.dropped = engines.get("dropped");
        self.conflict = engines.get("conflicts");
        self.cross_shard = engines.get("cross_shard");
        self.duplicated = traffic.duplicated;
        self.reordered = traffic.reordered;
        self.clogged = traffic.clogged;
        self.cut = traffic.cuts;
        self.stalled = work.stalls;
        self.connection_broken = work.connections_broken;
        self.crashed = work.crashes;
        self.lost = work.lost;
        self.datacenter_lost = work.datacenters_lost;
        self.paused = work.pauses;
        self.parted = work.parts;
        self.outage = work.outages;
        self.manager_lost = work.managers_lost;
        self.wild_clock = work.wild_clocks;
        self.gone = work.gone;
        self.interrupted = work.interrupted;
        self.interleaved = work.interleaved;
        self.forgot_behind = work.forgot_behind;
        self.diverged = work.diverged;
        self.sender_struck = work.senders_struck;
        self.majority_lost = work.majorities_lost;
        self.majority_returned = work.majorities_returned;
        self.power_lost = work.power_lost;
        self.checkpoints = work.checkpoints;
        self.restarts_from_checkpoints = work.restarts_from_checkpoints;
        self.ended_in_blocks = work.ended_in_blocks;
        self.ended_in_finish = work.ended_in_finish;
        self.torn_ends = work.torn_ends;
        self.void_streams = work.void_streams;
        self.refused_appends = work.refused_appends;
        self.full_disks = work.full_disks;
        self.failed_disks = work.failed_disks;
        self.older_checkpoints = work.older_checkpoints;
        self.damaged_disks = work.damaged_disks;
        self.disks_put_back = work.disks_put_back;
        self.unreadable_disks = work.unreadable_disks;
        self.for_want_of_shard = outcomes.for_want_of_shard;
        self.full = outcomes.full;
        self.undecided = outcomes.undecided;
        self.asked_again = outcomes.asked_again;
        self.called_again = outcomes.called_again;
        self.gave_up = outcomes.gave_up;
        self.refused = outcomes.refused;
        self.rolled_back = outcomes.rolled_back;
    }
}
