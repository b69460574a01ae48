//! How a simulation uses the observations of `tiga`.

use super::{Observed, Simulated};
use crate::checks::TigaRules;
use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::recovery::RecoveryFact;
use shoal_tiga::{Tiga, TigaObservation};

impl Simulated for Tiga {
    type Rules = TigaRules;
}

impl Observed for TigaObservation {
    fn cover(&self, coverage: &mut Coverage) {
        if let TigaObservation::Restored { .. } = self {
            coverage.restored += 1;
        }
    }

    fn digest(&self, digest: &mut Digest) {
        let mut words = |kind, one, other| digest.words([kind, one, other]);
        match self {
            TigaObservation::Serves { shard, ballot } => {
                words(1, shard.0.into(), ballot.epoch.0.into());
            }
            TigaObservation::Voted { id, t, digest, .. } => {
                words(2, id.sequence, t.0 ^ digest.version());
            }
            TigaObservation::Released { record, .. } => {
                words(3, record.transaction.id.sequence, record.t.0 ^ record.digest.version());
            }
            TigaObservation::VotedOptimistically { record, .. } => {
                words(8, record.transaction.id.sequence, record.t.0 ^ record.digest.version());
            }
            TigaObservation::Synced { shard, ballot, records } => {
                let of = u64::from(shard.0) << 32 | u64::from(ballot.epoch.0);
                words(9, of, records.len() as u64);
            }
            TigaObservation::Applied { shard, index, records } => {
                words(4, u64::from(shard.0) << 32 | *index, records.len() as u64);
            }
            TigaObservation::Restored { shard, length } => words(5, shard.0.into(), *length),
            TigaObservation::Committed { id, t, .. } => words(6, id.sequence, t.0),
            TigaObservation::Refused { id } => words(7, id.sequence, id.node.0.into()),
        }
    }

    fn recovery(&self) -> Option<RecoveryFact> {
        match self {
            TigaObservation::Serves { shard, ballot } => {
                Some(RecoveryFact::Serves(*shard, *ballot))
            }
            TigaObservation::Voted { .. }
            | TigaObservation::Released { .. }
            | TigaObservation::VotedOptimistically { .. }
            | TigaObservation::Synced { .. }
            | TigaObservation::Applied { .. }
            | TigaObservation::Restored { .. }
            | TigaObservation::Refused { .. }
            | TigaObservation::Committed { .. } => None,
        }
    }
}
