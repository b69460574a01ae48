//! The ends of epochs: shards report, and when all have, the FVW is final.

use super::command::Claim;
use super::machine::{Applied, Machine};
use types::{Clock, Epoch, ShardId, VectorWatermark};

impl Machine {
    /// A leader says how an epoch ended on its shard. False if it is not its place to say so.
    pub(super) fn on_report(
        &mut self,
        claim: Claim,
        epoch: Epoch,
        watermark: Clock,
        effects: &mut Vec<Applied>,
    ) -> bool {
        self.overwrite_final(claim.shard, epoch, watermark, effects);
        if self.claimed(&claim).is_none() || epoch >= self.epoch {
            return false;
        }
        if epoch <= self.settled {
            effects.push(Applied::Reported { claim, epoch });
            return true; // A repeat that was overtaken by the end.
        }
        let reports = self.closing.get_mut(&epoch).expect("closed epochs are closing or settled");
        let report = &mut reports[claim.shard.0 as usize];
        effects.push(Applied::Reported { claim, epoch });
        if report.is_some_and(|before| before != watermark) {
            return false; // What was reported under one ballot stays.
        }
        *report = Some(watermark);
        self.settle(effects);
        true
    }

    /// A leader says that something hangs in the open epoch. One epoch at a time is ended for that: who
    /// suspects wrongly, and often, costs no more than that.
    pub(super) fn on_close(
        &mut self,
        claim: Claim,
        epoch: Epoch,
        effects: &mut Vec<Applied>,
    ) -> bool {
        if self.claimed(&claim).is_none() || epoch != self.epoch || !self.closing.is_empty() {
            return false;
        }
        let chosen = self.promote_replicas();
        self.raise_epoch(&chosen, effects);
        true
    }

    /// Epochs end in their order; a later one may have all its reports already.
    fn settle(&mut self, effects: &mut Vec<Applied>) {
        while let Some(entry) = self.closing.first_entry()
            && entry.get().iter().all(Option::is_some)
        {
            let (epoch, reports) = entry.remove_entry();
            let mut watermark = VectorWatermark::new(epoch, reports.len());
            for (shard, clock) in (0..).map(ShardId).zip(reports.into_iter().flatten()) {
                watermark.raise(shard, clock);
            }
            self.settled = epoch;
            self.finals.push((self.next_revision(), watermark.clone()));
            self.changed = true;
            effects.push(Applied::Final(watermark));
        }
    }

    /// A planted bug, and nothing else.
    fn overwrite_final(
        &mut self,
        shard: ShardId,
        epoch: Epoch,
        watermark: Clock,
        effects: &mut Vec<Applied>,
    ) {
        if !self.options.faults.late_report_overwrites {
            return;
        }
        let last = self.finals.iter_mut().find(|(_, watermark)| watermark.epoch() == epoch);
        if let Some((_, changed)) = last
            && changed.raise(shard, watermark)
        {
            effects.push(Applied::Final(changed.clone()));
            self.changed = true;
        }
    }
}
