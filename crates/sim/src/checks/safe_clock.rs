//! M3: a worker's safe clock is below every clock it has drawn and not yet resolved, and everything
//! installed at or below it is in the stream up to there.

use engines::TransactionId;
use std::collections::BTreeSet;
use types::{Clock, ShardId, WorkerId};

/// The clocks of every stream.
#[derive(Debug)]
pub struct SafeClocks {
    workers: usize,
    streams: Vec<Clocks>,
}

#[derive(Debug, Clone, Default)]
struct Clocks {
    /// Drawn and not resolved.
    in_flight: BTreeSet<Clock>,
    /// Installed and not in the stream.
    owed: BTreeSet<Clock>,
    /// In the stream, above the safe clock: more may still be heard of these.
    appended: BTreeSet<Clock>,
    safe: Clock,
}

impl SafeClocks {
    /// No clock was drawn.
    pub fn new(shards: usize, workers: usize) -> SafeClocks {
        SafeClocks { workers, streams: vec![Clocks::default(); shards * workers] }
    }

    fn stream(&mut self, shard: ShardId, worker: WorkerId) -> &mut Clocks {
        &mut self.streams[shard.0 as usize * self.workers + worker.0 as usize]
    }

    /// A clock was drawn.
    pub fn drawn(
        &mut self,
        shard: ShardId,
        worker: WorkerId,
        id: TransactionId,
        clock: Clock,
    ) -> super::Verdict {
        let stream = self.stream(shard, worker);
        if clock <= stream.safe {
            let safe = stream.safe;
            return Err(format!("{id} drew {clock} on {shard}, whose safe clock here is {safe}"));
        }
        if !stream.in_flight.insert(clock) {
            return Err(format!("{id} drew {clock} on {shard}, which is in flight already"));
        }
        Ok(())
    }

    /// A clock is no longer in flight.
    pub fn resolved(
        &mut self,
        shard: ShardId,
        worker: WorkerId,
        clock: Clock,
        installed: bool,
    ) -> super::Verdict {
        if !self.stream(shard, worker).in_flight.remove(&clock) {
            return Err(format!("{clock} on {shard} was resolved, and was not in flight"));
        }
        if installed {
            self.installed(shard, worker, clock);
        }
        Ok(())
    }

    /// A version with this clock was installed.
    pub fn installed(&mut self, shard: ShardId, worker: WorkerId, clock: Clock) {
        let stream = self.stream(shard, worker);
        if !stream.appended.contains(&clock) {
            stream.owed.insert(clock);
        }
    }

    /// An entry with these pieces and this safe clock was appended.
    pub fn appended(
        &mut self,
        shard: ShardId,
        worker: WorkerId,
        safe: Clock,
        clocks: &[Clock],
    ) -> super::Verdict {
        let stream = self.stream(shard, worker);
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
