//! The rules of `two_phase_commit`, P1 to P10, judged by its observations; P1 and P9, and what P7 and
//! P10 say of locks and rows, by what clients see and what replicas hold.

use super::durable::EntryFacts;
use super::outcomes::Outcomes;
use super::records::Records;
use super::replay::AppliedVersion;
use super::sealed::Seals;
use super::{Checks, EngineRules, InstalledRow, Moment};
use crate::violation::Violation;
use shoal_two_phase_commit::TwoPhaseCommitObservation;

/// The state that only the rules of `two_phase_commit` need, beside that of all engines.
#[derive(Debug, Default)]
pub struct TwoPhaseCommitRules {
    records: Records,
    seals: Seals,
    outcomes: Outcomes,
}

impl EngineRules for TwoPhaseCommitRules {
    type Observation = TwoPhaseCommitObservation;

    const SPECULATES: bool = false;
    const ORDER: &'static str = "P2";
    const SAFE_CLOCK: &'static str = "P5";
    const DURABLE_FIRST: &'static str = "P4";
    const LEASE: &'static str = "P6";

    fn judge(
        checks: &mut Checks<TwoPhaseCommitRules>,
        moment: Moment,
        observation: &TwoPhaseCommitObservation,
    ) -> Result<(), Violation> {
        let (worker, node) = (moment.place.worker, moment.place.node);
        match observation {
            TwoPhaseCommitObservation::Read { transaction, shard, stamp, tombstone } => {
                checks.transactions.read(*transaction, *shard, stamp, *tombstone);
            }
            TwoPhaseCommitObservation::Drawn { transaction, shard, clock } => {
                checks.drawn(moment, *transaction, *shard, *clock)?;
            }
            TwoPhaseCommitObservation::Resolved { transaction, shard, clock, installed } => {
                checks.resolved(moment, *transaction, *shard, *clock, *installed)?;
            }
            TwoPhaseCommitObservation::GaveUp { transaction, shard } => {
                moment.blame("P8", checks.rules.outcomes.gave_up(*transaction, *shard))?;
            }
            TwoPhaseCommitObservation::Certified { transaction, own, stamp, writes } => {
                checks.transactions.certified(*transaction, *own, stamp, writes);
            }
            TwoPhaseCommitObservation::Installed {
                transaction,
                shard,
                stamp,
                table,
                key,
                value,
                ..
            } => {
                checks.transactions.installed(*transaction, *shard, stamp);
                moment.blame("P8", checks.rules.outcomes.installed(*transaction))?;
                checks.safe_clocks.installed(*shard, moment.place, stamp.clock);
                let row = InstalledRow { transaction: *transaction, stamp, table: *table, key };
                checks.install(moment, *shard, row, value.as_deref())?;
                let Checks { rules, durable, .. } = checks;
                let visible = rules.records.visible(*shard, worker, stamp.clock, durable);
                moment.blame("P4", visible)?;
            }
            TwoPhaseCommitObservation::Appended { shard, ballot, index, safe, clocks } => {
                checks.rules.records.appended(*shard, worker, *index, clocks);
                checks.rules.seals.appended(*shard, worker, *ballot, *index);
                let facts = EntryFacts { safe: *safe, ends: Vec::new() };
                checks.appended(moment, *shard, *ballot, *index, facts, clocks)?;
            }
            TwoPhaseCommitObservation::Led { shard, ballot, length } => {
                checks.rules.seals.led(*shard, worker, *ballot);
                checks.led(moment, *shard, *ballot, *length);
            }
            TwoPhaseCommitObservation::Serves { shard, ballot } => {
                checks.leases.serves(*shard, *ballot);
                let sealed = checks.rules.seals.serves(*shard, *ballot, &checks.durable);
                moment.blame("P7", sealed)?;
            }
            TwoPhaseCommitObservation::Acted { shard, ballot } => {
                checks.acted(moment, *shard, *ballot)?;
            }
            TwoPhaseCommitObservation::Recovered { transaction: _, shard, clock } => {
                checks.safe_clocks.recovered(*shard, moment.place, *clock);
            }
            TwoPhaseCommitObservation::Acknowledged { transaction, .. } => {
                let seen = checks.transactions.reported(*transaction);
                let reported = checks.rules.records.reported(*transaction, seen, &checks.durable);
                moment.blame("P4", reported)?;
            }
            TwoPhaseCommitObservation::Applied { shard, stamp, table, key, won } => {
                let Checks { rules, durable, replay, installed, .. } = checks;
                let visible = rules.records.visible(*shard, worker, stamp.clock, durable);
                moment.blame("P4", visible)?;
                let (shard, table, won) = (*shard, *table, *won);
                let version = AppliedVersion { shard, stamp, table, key, won };
                moment.blame("P5", replay.applied(node, version, installed))?;
                checks.follow(shard, stamp, table, key);
            }
            TwoPhaseCommitObservation::Copied { shard, stamp, table, key, won } => {
                let Checks { rules, durable, replay, installed, .. } = checks;
                let is_durable = rules.records.copied(*shard, stamp.clock, durable);
                moment.blame("P10", is_durable)?;
                let (shard, table, won) = (*shard, *table, *won);
                let version = AppliedVersion { shard, stamp, table, key, won };
                moment.blame("P5", replay.applied(node, version, installed))?;
            }
            TwoPhaseCommitObservation::Restored { .. } => {}
        }
        Ok(())
    }
}
