//! How a simulation uses the observations of `mako`.

use super::{Observed, Simulated};
use crate::checks::MakoRules;
use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::recovery::{RecoveryFact, ShardRecoveryStage};
use shoal_mako::{Mako, MakoObservation};
use shoal_types::{ShardId, TableId};

impl Simulated for Mako {
    type Rules = MakoRules;
}

impl Observed for MakoObservation {
    fn cover(&self, coverage: &mut Coverage) {
        match self {
            MakoObservation::Read { tombstone, .. } => {
                coverage.tombstone += u64::from(*tombstone);
            }
            MakoObservation::Resolved { installed, .. } => {
                coverage.given_up += u64::from(!installed);
            }
            MakoObservation::Certified { own, stamp, writes, .. } => {
                coverage.certified(*own, stamp, writes);
            }
            MakoObservation::Appended { clocks, .. } => {
                coverage.heartbeat += u64::from(clocks.is_empty());
            }
            MakoObservation::Settled { .. } => coverage.settled += 1,
            MakoObservation::Applied { won, .. } => coverage.thomas += u64::from(!won),
            MakoObservation::Led { length, .. } => coverage.led += u64::from(*length > 0),
            MakoObservation::RolledBack { settled, .. } => {
                coverage.rolled_back_with_epoch += 1;
                coverage.lost_early += u64::from(!settled);
            }
            MakoObservation::HeldUp { .. } => coverage.held_up += 1,
            MakoObservation::Restored { .. } => coverage.restored += 1,
            MakoObservation::Given { withheld, undecided, .. } => {
                coverage.withheld += u64::from(*withheld > 0);
                coverage.carried_undecided += u64::from(!undecided.is_empty());
            }
            MakoObservation::Inherited { .. } => coverage.inherited += 1,
            MakoObservation::Drawn { .. }
            | MakoObservation::Serves { .. }
            | MakoObservation::Acted { .. }
            | MakoObservation::Reported { .. }
            | MakoObservation::Installed { .. }
            | MakoObservation::Watermark { .. }
            | MakoObservation::Opened { .. }
            | MakoObservation::Locked { .. }
            | MakoObservation::Swept { .. }
            | MakoObservation::Copied { .. }
            | MakoObservation::Acknowledged { .. } => {}
        }
    }

    fn digest(&self, digest: &mut Digest) {
        let mut words = |kind, one, other| digest.words([kind, one, other]);
        match self {
            MakoObservation::Read { transaction, stamp, .. } => {
                words(1, transaction.sequence, stamp.clock.0);
            }
            MakoObservation::Drawn { transaction, clock, .. } => {
                words(2, transaction.sequence, clock.0);
            }
            MakoObservation::Resolved { transaction, clock, .. } => {
                words(3, transaction.sequence, clock.0);
            }
            MakoObservation::Certified { transaction, stamp, .. } => {
                words(4, transaction.sequence, stamp.clock.0);
            }
            MakoObservation::Installed { transaction, stamp, key, value, .. } => {
                words(5, transaction.sequence, stamp.clock.0);
                digest.bytes(key);
                digest.bytes(value.as_deref().unwrap_or_default());
            }
            MakoObservation::Appended { index, safe, .. } => words(6, *index, safe.0),
            MakoObservation::Settled { watermark } => words(10, watermark.epoch().0.into(), 0),
            MakoObservation::Watermark { shard, clock } => words(7, shard.0.into(), clock.0),
            MakoObservation::Acknowledged { transaction, stamp, .. } => {
                words(8, transaction.sequence, stamp.clock.0);
            }
            MakoObservation::Applied { stamp, key, won, .. } => {
                words(9, stamp.clock.0, (*won).into());
                digest.bytes(key);
            }
            MakoObservation::Led { shard, ballot, length } => {
                words(11, u64::from(shard.0) << 32 | u64::from(ballot.epoch.0), *length);
            }
            MakoObservation::Serves { shard, ballot } => {
                words(12, shard.0.into(), ballot.epoch.0.into());
            }
            MakoObservation::Acted { shard, ballot } => {
                words(13, shard.0.into(), ballot.epoch.0.into());
            }
            MakoObservation::Reported { shard, epoch, watermark } => {
                words(14, u64::from(shard.0) << 32 | u64::from(epoch.0), watermark.0);
            }
            MakoObservation::RolledBack { transaction, settled } => {
                words(15, transaction.sequence, u64::from(*settled));
            }
            MakoObservation::Given { cut, rows, undecided, .. } => {
                words(18, cut.0, (rows.len() << 16 | undecided.len()) as u64);
            }
            MakoObservation::Opened { epoch } => words(20, epoch.0.into(), 0),
            MakoObservation::Locked { shard, clock, .. } => words(23, shard.0.into(), clock.0),
            MakoObservation::Swept { shard, stamp } => words(21, shard.0.into(), stamp.clock.0),
            MakoObservation::Copied { shard, cut } => words(22, shard.0.into(), cut.0),
            MakoObservation::Restored { shard } => words(17, u64::from(shard.0), 0),
            MakoObservation::Inherited { shard, stamp, key, .. } => {
                words(19, u64::from(shard.0), stamp.clock.0);
                digest.bytes(key);
            }
            MakoObservation::HeldUp { shard, epoch } => {
                words(16, u64::from(shard.0), u64::from(epoch.0));
            }
        }
    }

    fn recovery(&self) -> Option<RecoveryFact> {
        let (shard, stage) = match self {
            MakoObservation::Led { shard, .. } => (*shard, ShardRecoveryStage::Prepared),
            MakoObservation::Appended { shard, ends, .. } if !ends.is_empty() => {
                (*shard, ShardRecoveryStage::Ended)
            }
            MakoObservation::Reported { shard, .. } => (*shard, ShardRecoveryStage::Reported),
            MakoObservation::Serves { shard, ballot } => {
                return Some(RecoveryFact::Serves(*shard, *ballot));
            }
            MakoObservation::Read { .. }
            | MakoObservation::Drawn { .. }
            | MakoObservation::Resolved { .. }
            | MakoObservation::Certified { .. }
            | MakoObservation::Installed { .. }
            | MakoObservation::Acted { .. }
            | MakoObservation::Appended { .. }
            | MakoObservation::Watermark { .. }
            | MakoObservation::Settled { .. }
            | MakoObservation::RolledBack { .. }
            | MakoObservation::HeldUp { .. }
            | MakoObservation::Restored { .. }
            | MakoObservation::Given { .. }
            | MakoObservation::Opened { .. }
            | MakoObservation::Locked { .. }
            | MakoObservation::Swept { .. }
            | MakoObservation::Copied { .. }
            | MakoObservation::Inherited { .. }
            | MakoObservation::Acknowledged { .. }
            | MakoObservation::Applied { .. } => return None,
        };
        Some(RecoveryFact::Reached(shard, stage))
    }

    fn entry(&self) -> Option<(ShardId, u64)> {
        match self {
            MakoObservation::Appended { shard, index, .. } => Some((*shard, *index)),
            _ => None,
        }
    }

    fn installed_table(&self) -> Option<TableId> {
        match self {
            MakoObservation::Installed { table, .. } => Some(*table),
            _ => None,
        }
    }

    fn copied(&self) -> Option<ShardId> {
        match self {
            MakoObservation::Given { shard, .. } => Some(*shard),
            _ => None,
        }
    }
}
