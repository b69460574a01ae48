//! M3: a worker's safe clock is below every clock it has drawn and not yet resolved, and everything
//! installed at or below it is in the stream up to there.

use super::verdict::RuleVerdict;
use shoal_engine::TransactionId;
use shoal_engine::WorkerPlace;
use shoal_types::{Clock, NodeId, ShardId};
use std::collections::{BTreeMap, BTreeSet};

/// For every stream, the clocks that its leading worker has in flight or installed.
#[derive(Debug, Default)]
pub struct SafeClocks {
    streams: BTreeMap<(ShardId, WorkerPlace), StreamClocks>,
}

#[derive(Debug, Clone, Default)]
struct StreamClocks {
    /// Clocks that were drawn and not resolved.
    in_flight: BTreeSet<Clock>,
    /// Clocks that were installed and are in no entry of the stream yet.
    owed: BTreeSet<Clock>,
    /// Clocks in the stream above the safe clock: later entries may carry more pieces with them.
    appended: BTreeSet<Clock>,
    safe: Clock,
    /// The worker has led the stream before, and may still receive outcomes of transactions that were in
    /// flight then.
    led_before: bool,
}

impl SafeClocks {
    fn stream(&mut self, shard: ShardId, place: WorkerPlace) -> &mut StreamClocks {
        self.streams.entry((shard, place)).or_default()
    }

    /// A worker begins to lead a stream that another has led before it.
    pub fn leads(&mut self, shard: ShardId, place: WorkerPlace) {
        *self.stream(shard, place) = StreamClocks { led_before: true, ..StreamClocks::default() };
    }

    /// A worker leads by promises that came late: its stream lacks entries, and has those that it had appended in an earlier
    /// leadership. What these have prepared may be in doubt there since (two_phase_commit, seed 538872012).
    pub fn leads_late(&mut self, shard: ShardId, place: WorkerPlace) {
        let stream = self.stream(shard, place);
        let appended = std::mem::take(&mut stream.appended);
        *stream = StreamClocks { led_before: true, appended, ..StreamClocks::default() };
    }

    /// A node has crashed: the clocks that its workers had in flight are gone.
    pub fn crashed(&mut self, node: NodeId) {
        self.streams.retain(|(_, place), _| place.node != node);
    }

    /// A worker has drawn a clock, which must be above the safe clock that its stream carries.
    pub fn drawn(
        &mut self,
        shard: ShardId,
        place: WorkerPlace,
        id: TransactionId,
        clock: Clock,
    ) -> RuleVerdict {
        let stream = self.stream(shard, place);
        if clock <= stream.safe {
            let safe = stream.safe;
            return Err(format!("{id} drew {clock} on {shard}, whose safe clock here is {safe}"));
        }
        if !stream.in_flight.insert(clock) {
            return Err(format!("{id} drew {clock} on {shard}, which is in flight already"));
        }
        Ok(())
    }

    /// A clock that a former leader had drawn is in flight again; its piece is in the stream.
    pub fn recovered(&mut self, shard: ShardId, place: WorkerPlace, clock: Clock) {
        let stream = self.stream(shard, place);
        stream.in_flight.insert(clock);
        stream.appended.insert(clock);
    }

    /// A clock is no longer in flight.
    pub fn resolved(
        &mut self,
        shard: ShardId,
        place: WorkerPlace,
        clock: Clock,
        installed: bool,
    ) -> RuleVerdict {
        let stream = self.stream(shard, place);
        if !stream.in_flight.remove(&clock) && !stream.led_before {
            return Err(format!("{clock} on {shard} was resolved, and was not in flight"));
        }
        if installed {
            self.installed(shard, place, clock);
        } else {
            // Some of its versions may have been installed: they are rolled back with their epoch.
            self.stream(shard, place).owed.remove(&clock);
        }
        Ok(())
    }

    /// A version with this clock was installed.
    pub fn installed(&mut self, shard: ShardId, place: WorkerPlace, clock: Clock) {
        let stream = self.stream(shard, place);
        if !stream.appended.contains(&clock) {
            stream.owed.insert(clock);
        }
    }

    /// An entry with these pieces and this safe clock was appended.
    pub fn appended(
        &mut self,
        shard: ShardId,
        place: WorkerPlace,
        safe: Clock,
        clocks: &[Clock],
    ) -> RuleVerdict {
        let stream = self.stream(shard, place);
        for clock in clocks {
            stream.owed.remove(clock);
            stream.appended.insert(*clock);
        }
        if safe < stream.safe {
            return Err(format!("the safe clock of {shard} fell from {} to {safe}", stream.safe));
        }
        if let Some(clock) = stream.in_flight.first().filter(|clock| **clock <= safe) {
            return Err(format!("the safe clock of {shard} is {safe}, and {clock} is in flight"));
        }
        if let Some(clock) = stream.owed.first().filter(|clock| **clock <= safe) {
            return Err(format!(
                "the safe clock of {shard} is {safe}, and {clock}, which is installed, is in no entry"
            ));
        }
        stream.safe = safe;
        stream.appended = stream.appended.split_off(&Clock(safe.0.saturating_add(1)));
        Ok(())
    }
}
