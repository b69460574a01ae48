//! How a simulation uses the observations of `two_phase_commit`.

use super::{Observed, Simulated};
use crate::checks::TwoPhaseCommitRules;
use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::recovery::{RecoveryFact, ShardRecoveryStage};
use shoal_two_phase_commit::{TwoPhaseCommit, TwoPhaseCommitObservation};
use shoal_types::{ShardId, TableId};

impl Simulated for TwoPhaseCommit {
    type Rules = TwoPhaseCommitRules;
}

impl Observed for TwoPhaseCommitObservation {
    fn cover(&self, coverage: &mut Coverage) {
        match self {
            TwoPhaseCommitObservation::Read { tombstone, .. } => {
                coverage.tombstone += u64::from(*tombstone);
            }
            TwoPhaseCommitObservation::Resolved { installed, .. } => {
                coverage.given_up += u64::from(!installed);
            }
            TwoPhaseCommitObservation::Certified { own, stamp, writes, .. } => {
                coverage.certified(*own, stamp, writes);
            }
            TwoPhaseCommitObservation::Appended { clocks, .. } => {
                coverage.heartbeat += u64::from(clocks.is_empty());
            }
            TwoPhaseCommitObservation::Applied { won, .. } => coverage.thomas += u64::from(!won),
            TwoPhaseCommitObservation::Restored { .. } => coverage.restored += 1,
            TwoPhaseCommitObservation::Led { length, .. } => coverage.led += u64::from(*length > 0),
            TwoPhaseCommitObservation::Drawn { .. }
            | TwoPhaseCommitObservation::GaveUp { .. }
            | TwoPhaseCommitObservation::Recovered { .. }
            | TwoPhaseCommitObservation::Serves { .. }
            | TwoPhaseCommitObservation::Acted { .. }
            | TwoPhaseCommitObservation::Copied { .. }
            | TwoPhaseCommitObservation::Installed { .. }
            | TwoPhaseCommitObservation::Acknowledged { .. } => {}
        }
    }

    fn digest(&self, digest: &mut Digest) {
        let mut words = |kind, one, other| digest.words([kind, one, other]);
        match self {
            TwoPhaseCommitObservation::Read { transaction, stamp, .. } => {
                words(1, transaction.sequence, stamp.clock.0);
            }
            TwoPhaseCommitObservation::Drawn { transaction, clock, .. } => {
                words(2, transaction.sequence, clock.0);
            }
            TwoPhaseCommitObservation::Resolved { transaction, clock, .. } => {
                words(3, transaction.sequence, clock.0);
            }
            TwoPhaseCommitObservation::GaveUp { transaction, shard } => {
                words(26, transaction.sequence, shard.0.into());
            }
            TwoPhaseCommitObservation::Certified { transaction, stamp, .. } => {
                words(4, transaction.sequence, stamp.clock.0);
            }
            TwoPhaseCommitObservation::Installed { transaction, stamp, key, value, .. } => {
                words(5, transaction.sequence, stamp.clock.0);
                digest.bytes(key);
                digest.bytes(value.as_deref().unwrap_or_default());
            }
            TwoPhaseCommitObservation::Appended { index, safe, .. } => words(6, *index, safe.0),
            TwoPhaseCommitObservation::Applied { stamp, key, won, .. } => {
                words(9, stamp.clock.0, (*won).into());
                digest.bytes(key);
            }
            TwoPhaseCommitObservation::Acknowledged { transaction, .. } => {
                words(8, transaction.sequence, 0);
            }
            TwoPhaseCommitObservation::Led { shard, ballot, length } => {
                words(11, u64::from(shard.0) << 32 | u64::from(ballot.epoch.0), *length);
            }
            TwoPhaseCommitObservation::Serves { shard, ballot } => {
                words(12, shard.0.into(), ballot.epoch.0.into());
            }
            TwoPhaseCommitObservation::Acted { shard, ballot } => {
                words(13, shard.0.into(), ballot.epoch.0.into());
            }
            TwoPhaseCommitObservation::Copied { stamp, key, won, .. } => {
                words(25, stamp.clock.0, (*won).into());
                digest.bytes(key);
            }
            TwoPhaseCommitObservation::Restored { shard } => words(17, shard.0.into(), 0),
            TwoPhaseCommitObservation::Recovered { transaction, clock, .. } => {
                words(24, transaction.sequence, clock.0);
            }
        }
    }

    fn recovery(&self) -> Option<RecoveryFact> {
        match self {
            TwoPhaseCommitObservation::Led { shard, .. } => {
                Some(RecoveryFact::Reached(*shard, ShardRecoveryStage::Prepared))
            }
            TwoPhaseCommitObservation::Serves { shard, ballot } => {
                Some(RecoveryFact::Serves(*shard, *ballot))
            }
            _ => None,
        }
    }

    fn entry(&self) -> Option<(ShardId, u64)> {
        match self {
            TwoPhaseCommitObservation::Appended { shard, index, .. } => Some((*shard, *index)),
            _ => None,
        }
    }

    fn installed_table(&self) -> Option<TableId> {
        match self {
            TwoPhaseCommitObservation::Installed { table, is_inherited: false, .. } => Some(*table),
            _ => None,
        }
    }

    fn copied(&self) -> Option<ShardId> {
        None
    }
}
