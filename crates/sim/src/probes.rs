//! Probes: rare paths that a long run has to reach. One that it never reaches means that the simulation
//! does not look where it should.

use crate::metrics::Metrics;
use engines::Observation;
use std::ops::AddAssign;
use types::{Clock, ShardId};

macro_rules! probes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// How often each rare path was reached.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Probes {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Probes {
            /// Names and counts.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($text, self.$name)),*].into_iter()
            }
        }

        impl AddAssign for Probes {
            fn add_assign(&mut self, other: Probes) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

probes! {
    /// A coordinator asked again.
    resent = "request sent again",
    /// A client outside asked again.
    asked_again = "client asked again",
    /// A message that made no sense any more was dropped.
    dropped = "late message dropped",
    /// The network delivered a message twice.
    duplicated = "message duplicated",
    /// A message overtook another.
    reordered = "message reordered",
    /// A link was clogged while something was sent.
    clogged = "message held by a clog",
    /// A link was cut.
    cut = "link cut",
    /// A worker stood still.
    stalled = "worker stalled",
    /// Certification met a conflict.
    conflict = "conflict",
    /// A retry budget was spent, or the engine refused.
    gave_up = "gave up",
    /// The engine refused for overload.
    refused = "refused for overload",
    /// A transaction touched several shards.
    cross_shard = "several shards",
    /// A tombstone was read.
    tombstone = "tombstone read",
    /// A transaction depends on a shard that it does not write.
    dependency = "depends on a foreign shard",
    /// A stamp was collapsed to its bound.
    collapsed = "stamp collapsed",
    /// A clock was drawn and given up.
    given_up = "clock given up",
    /// A follower met an older version after a newer one.
    thomas = "older version after newer",
    /// A transaction that writes nothing was certified.
    read_only = "read-only certified",
    /// A heartbeat: an entry without a piece.
    heartbeat = "heartbeat appended",
    /// A worker has settled an epoch.
    settled = "epoch settled",
    /// A workload rolled back.
    rolled_back = "rolled back on demand",
}

impl Probes {
    /// Counts what can be seen of an observation.
    pub fn see(&mut self, observation: &Observation) {
        match observation {
            Observation::Read { tombstone, .. } => self.tombstone += u64::from(*tombstone),
            Observation::Resolved { installed, .. } => self.given_up += u64::from(!installed),
            Observation::Certified { own, stamp, writes, .. } => {
                self.read_only += u64::from(writes.is_empty());
                let remote = stamp.as_ref().remote;
                let is_floor = |shard: ShardId| shard == ShardId::EVERY;
                self.collapsed += u64::from(remote.iter().any(|entry| is_floor(entry.shard)));
                let written = |shard: ShardId| writes.iter().any(|(other, _)| *other == shard);
                let foreign = |shard: ShardId, clock: Clock| {
                    shard != *own && !is_floor(shard) && !written(shard) && clock > Clock::ZERO
                };
                let depends = remote.iter().any(|entry| foreign(entry.shard, entry.clock));
                self.dependency += u64::from(depends);
            }
            Observation::Appended { clocks, .. } => self.heartbeat += u64::from(clocks.is_empty()),
            Observation::Settled { .. } => self.settled += 1,
            Observation::Applied { won, .. } => self.thomas += u64::from(!won),
            Observation::Drawn { .. }
            | Observation::Installed { .. }
            | Observation::Watermark { .. }
            | Observation::Told { .. } => {}
        }
    }

    /// Takes over what is counted anyway.
    pub fn take_metrics(&mut self, metrics: &Metrics) {
        let Metrics { traffic, work, engines, outcomes, .. } = metrics;
        self.resent = engines.resent;
        self.dropped = engines.dropped;
        self.conflict = engines.conflicts;
        self.cross_shard = engines.cross_shard;
        self.duplicated = traffic.duplicated;
        self.reordered = traffic.reordered;
        self.clogged = traffic.clogged;
        self.cut = traffic.cuts;
        self.stalled = work.stalls;
        self.asked_again = outcomes.asked_again;
        self.gave_up = outcomes.gave_up;
        self.refused = outcomes.refused;
        self.rolled_back = outcomes.rolled_back;
    }
}
