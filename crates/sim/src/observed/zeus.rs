//! How a simulation uses the observations of `zeus`.

use super::{Observed, Simulated};
use crate::checks::ZeusRules;
use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::recovery::RecoveryFact;
use shoal_zeus::{TransactionFact, Zeus, ZeusObservation};

impl Simulated for Zeus {
    type Rules = ZeusRules;
}

impl Observed for ZeusObservation {
    fn cover(&self, coverage: &mut Coverage) {
        if let ZeusObservation::Granule { rows, .. } = self {
            coverage.tombstone += u64::from(
                rows.iter().any(|row| row.row.as_ref().is_some_and(|row| row.value.is_none())),
            );
        }
    }

    fn digest(&self, digest: &mut Digest) {
        match self {
            ZeusObservation::Serves { shard, ballot } => {
                digest.word(u64::from(shard.0) << 32 | u64::from(ballot.epoch.0));
            }
            ZeusObservation::Granule { granule, record, clock, rows, .. } => {
                digest.bytes(&granule.prefix);
                digest.word(record.o_ts.version);
                digest.word(clock.0 << 16 | rows.len() as u64);
            }
            ZeusObservation::Transaction { worker, fact } => {
                let (number, touched) = match fact {
                    TransactionFact::Committed { number, touched } => (*number, touched.len()),
                    TransactionFact::Validated { number } => (*number, 0),
                    TransactionFact::ReadsValidated { touched } => (0, touched.len()),
                    TransactionFact::Lost { epoch, .. } => (u64::from(epoch.0), 0),
                };
                digest.word(number << 16 | u64::from(worker.0) << 8 | touched as u64);
            }
            ZeusObservation::Forgotten => {}
        }
    }

    fn recovery(&self) -> Option<RecoveryFact> {
        match self {
            ZeusObservation::Serves { shard, ballot } => {
                Some(RecoveryFact::Serves(*shard, *ballot))
            }
            ZeusObservation::Granule { .. }
            | ZeusObservation::Transaction { .. }
            | ZeusObservation::Forgotten => None,
        }
    }
}
