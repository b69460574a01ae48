//! The rules of `mako`, M1 to M10, judged by its observations.

use super::copies::{self, SentChunk};
use super::durable::EntryFacts;
use super::epochs::{self, OpenEpochs};
use super::finals::Finals;
use super::replay::AppliedVersion;
use super::verdict::RuleVerdict;
use super::{Checks, EngineRules, InstalledRow, Moment, replay, reported, stamps};
use crate::violation::Violation;
use shoal_cluster::manager::FinalEnds;
use shoal_mako::MakoObservation;
use shoal_mako::epoch_ends::watermark_of;
use shoal_types::{Clock, NodeId, ShardId, TableId, Time, VectorWatermark};
use std::collections::BTreeMap;

/// The state that only the rules of `mako` need, beside that of all engines.
#[derive(Debug, Default)]
pub struct MakoRules {
    finals: Finals,
    opened: OpenEpochs,
    /// Up to which clock each node has received a complete copy of a shard.
    copied: BTreeMap<(NodeId, ShardId), Clock>,
}

impl EngineRules for MakoRules {
    type Observation = MakoObservation;

    const SPECULATES: bool = true;
    const ORDER: &'static str = "M2";
    const SAFE_CLOCK: &'static str = "M3";
    const DURABLE_FIRST: &'static str = "M5";
    const LEASE: &'static str = "M7";

    fn judge(
        checks: &mut Checks<MakoRules>,
        moment: Moment,
        observation: &MakoObservation,
    ) -> Result<(), Violation> {
        match observation {
            MakoObservation::Read { .. }
            | MakoObservation::Drawn { .. }
            | MakoObservation::Resolved { .. }
            | MakoObservation::Certified { .. }
            | MakoObservation::Installed { .. }
            | MakoObservation::Locked { .. }
            | MakoObservation::Acknowledged { .. }
            | MakoObservation::RolledBack { .. } => transaction(checks, moment, observation),
            MakoObservation::Appended { .. }
            | MakoObservation::Led { .. }
            | MakoObservation::Serves { .. }
            | MakoObservation::Acted { .. }
            | MakoObservation::Watermark { .. } => leadership(checks, moment, observation),
            MakoObservation::Settled { .. }
            | MakoObservation::Opened { .. }
            | MakoObservation::Reported { .. }
            | MakoObservation::HeldUp { .. } => epoch(checks, moment, observation),
            MakoObservation::Given { .. }
            | MakoObservation::Copied { .. }
            | MakoObservation::Restored { .. }
            | MakoObservation::Swept { .. }
            | MakoObservation::Inherited { .. }
            | MakoObservation::Applied { .. } => replica(checks, moment, observation),
        }
    }

    fn ended(checks: &mut Checks<MakoRules>, at: Time, ends: &FinalEnds) -> Result<(), Violation> {
        let verdict = settled(checks, &watermark_of(ends));
        verdict.map_err(|what| Violation::new("M9", at, what))
    }

    fn crashed(&mut self, node: NodeId) {
        self.opened.crashed(node);
        self.copied.retain(|(other, _), _| *other != node);
    }
}

/// The managers have made an FVW final, or a worker knows it.
fn settled(checks: &mut Checks<MakoRules>, last: &VectorWatermark) -> RuleVerdict {
    let is_news = checks.durable.last(last.epoch()).is_none();
    checks.rules.finals.settled(last, &mut checks.durable)?;
    if is_news {
        checks.installed.settle(last.epoch(), &checks.durable);
    }
    Ok(())
}

/// Judges an observation about a transaction.
fn transaction(
    checks: &mut Checks<MakoRules>,
    moment: Moment,
    observation: &MakoObservation,
) -> Result<(), Violation> {
    let node = moment.place.node;
    match observation {
        MakoObservation::Read { transaction, shard, stamp, tombstone } => {
            checks.transactions.read(*transaction, *shard, stamp, *tombstone);
            if let Some((id, writer)) = checks.transactions.writer(*shard, stamp) {
                let carried = stamps::carries(id, writer, *shard, stamp, &checks.durable);
                moment.blame("M1", carried)?;
            }
        }
        MakoObservation::Drawn { transaction, shard, clock } => {
            checks.rules.opened.drawn(node, *shard, *clock);
            checks.drawn(moment, *transaction, *shard, *clock)?;
        }
        MakoObservation::Resolved { transaction, shard, clock, installed } => {
            checks.rules.opened.resolved(node, *shard, *clock);
            checks.resolved(moment, *transaction, *shard, *clock, *installed)?;
        }
        MakoObservation::Certified { transaction, own, stamp, writes } => {
            let seen = checks.transactions.certified(*transaction, *own, stamp, writes);
            moment.blame("M1", stamps::check(*transaction, seen, &checks.durable))?;
            moment.blame("M8", epochs::check(*transaction, seen, &checks.durable))?;
        }
        MakoObservation::Installed { transaction, shard, stamp, table, key, value } => {
            let seen = checks.transactions.installed(*transaction, *shard, stamp);
            let carried = stamps::carries(*transaction, seen, *shard, stamp, &checks.durable);
            moment.blame("M1", carried)?;
            checks.safe_clocks.installed(*shard, moment.place, stamp.clock);
            let uses = checks.rules.opened.uses(node, *shard, stamp.epoch, stamp.clock);
            moment.blame("M8", uses)?;
            let row = InstalledRow { transaction: *transaction, stamp, table: *table, key };
            checks.install(moment, *shard, row, value.as_deref())?;
        }
        MakoObservation::Locked { shard, epoch, clock } => {
            moment.blame("M8", checks.rules.opened.uses(node, *shard, *epoch, *clock))?;
        }
        MakoObservation::Acknowledged { transaction, own, stamp } => {
            let seen = checks.transactions.reported(*transaction);
            moment
                .blame("M5", reported::check(*transaction, *own, stamp, seen, &checks.durable))?;
            checks.rules.finals.taken(*own, stamp, &checks.durable);
        }
        MakoObservation::RolledBack { transaction, .. } => {
            let seen = checks.transactions.rolled_back(*transaction);
            moment.blame("M5", reported::rolled_back(*transaction, seen, &checks.durable))?;
        }
        _ => unreachable!("{observation:?} is judged elsewhere"),
    }
    Ok(())
}

/// Judges an observation about a shard's leader.
fn leadership(
    checks: &mut Checks<MakoRules>,
    moment: Moment,
    observation: &MakoObservation,
) -> Result<(), Violation> {
    match observation {
        MakoObservation::Appended { shard, ballot, index, ends, safe, clocks } => {
            let facts = EntryFacts { safe: *safe, ends: ends.clone() };
            checks.appended(moment, *shard, *ballot, *index, facts, clocks)?;
        }
        MakoObservation::Led { shard, ballot, length } => {
            checks.led(moment, *shard, *ballot, *length);
        }
        MakoObservation::Serves { shard, ballot } => checks.leases.serves(*shard, *ballot),
        MakoObservation::Acted { shard, ballot } => checks.acted(moment, *shard, *ballot)?,
        MakoObservation::Watermark { shard, clock } => {
            moment.blame("M4", checks.durable.check(*shard, *clock))?;
        }
        _ => unreachable!("{observation:?} is judged elsewhere"),
    }
    Ok(())
}

/// Judges an observation about an epoch.
fn epoch(
    checks: &mut Checks<MakoRules>,
    moment: Moment,
    observation: &MakoObservation,
) -> Result<(), Violation> {
    match observation {
        MakoObservation::Settled { watermark } => {
            moment.blame("M9", settled(checks, watermark))?;
        }
        MakoObservation::Opened { epoch } => checks.rules.opened.opens(moment.place.node, *epoch),
        MakoObservation::Reported { shard, epoch, watermark } => {
            let verdict = Finals::reported(*shard, *epoch, *watermark, &checks.durable);
            moment.blame("M9", verdict)?;
        }
        MakoObservation::HeldUp { .. } => {}
        _ => unreachable!("{observation:?} is judged elsewhere"),
    }
    Ok(())
}

/// Judges an observation about a replica or a copy for one.
fn replica(
    checks: &mut Checks<MakoRules>,
    moment: Moment,
    observation: &MakoObservation,
) -> Result<(), Violation> {
    let Checks { rules, durable, transactions, installed, replay: replays, held, .. } = checks;
    let MakoRules { finals, copied, .. } = rules;
    let node = moment.place.node;
    match observation {
        MakoObservation::Swept { shard, stamp } => {
            let writer = transactions.writer(*shard, stamp).map(|(_, seen)| seen);
            moment.blame("M9", replay::covered(*shard, stamp, writer, durable))?;
        }
        MakoObservation::Copied { shard, cut } => {
            let copied = copied.entry((node, *shard)).or_default();
            *copied = (*cut).max(*copied);
        }
        MakoObservation::Given {
            shard,
            cut,
            from,
            until,
            settled,
            watermarks,
            rows,
            undecided,
            withheld: _,
        } => {
            let (shard, cut, until) = (*shard, *cut, until.as_ref());
            let copied = copied.get(&(node, shard)).copied().unwrap_or_default();
            moment.blame("M10", copies::reaches(shard, cut, copied, held, durable))?;
            if *from == (TableId(0), Vec::new()) {
                moment
                    .blame("M9", copies::has_finals(settled.0, settled.1, watermarks, durable))?;
            }
            let settled = settled.1;
            let given = SentChunk { shard, cut, from, until, rows, settled, watermarks, undecided };
            moment.blame("M10", copies::check(given, installed, transactions, durable))?;
        }
        MakoObservation::Inherited { shard, stamp: _, table, key } => {
            // The same holds for versions that the node installs as a leader.
            replays.installed(node, *shard, *table, key);
        }
        MakoObservation::Applied { shard, stamp, table, key, won } => {
            let writer = transactions.writer(*shard, stamp).map(|(_, seen)| seen);
            moment.blame("M6", replay::covered(*shard, stamp, writer, durable))?;
            finals.taken(*shard, stamp, durable);
            let (shard, table, won) = (*shard, *table, *won);
            let version = AppliedVersion { shard, stamp, table, key, won };
            moment.blame("M6", replays.applied(node, version, installed))?;
            checks.follow(shard, stamp, table, key);
        }
        MakoObservation::Restored { .. } => {}
        _ => unreachable!("{observation:?} is judged elsewhere"),
    }
    Ok(())
}
