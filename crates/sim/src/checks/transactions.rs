//! What is known of every transaction: what it read, its stamp, what it installed, what was told.

use shoal_engine::TransactionId;
use shoal_types::{Clock, Epoch, ShardId, Stamp};
use std::collections::BTreeMap;

/// All attempts that were seen.
#[derive(Debug, Default)]
pub struct Transactions {
    seen: BTreeMap<TransactionId, SeenAttempt>,
    /// Who drew a clock: its writer's stamp tells what a version with this clock depends on.
    writers: BTreeMap<(ShardId, Epoch, Clock), TransactionId>,
}

/// One attempt.
#[derive(Debug, Default)]
pub struct SeenAttempt {
    /// What it read before it was certified.
    pub reads: Vec<SeenRead>,
    /// Its stamp, once it has one.
    pub certified: Option<Certified>,
    /// Where it installed something, and the stamp of that as the shard keeps it.
    pub installed: Vec<(ShardId, Stamp)>,
    /// The clocks that were drawn for it, and which of them were resolved as installed: a branch that had
    /// nothing but absent keys to delete installs no version.
    pub drawn: Vec<(ShardId, Clock, bool)>,
    /// A client was told something of it.
    pub told: bool,
    /// He was told that it has committed.
    pub told_outcome: bool,
    /// A client was told that it was rolled back with its epoch.
    pub told_rolled_back: bool,
}

/// A version that was read.
#[derive(Debug)]
pub struct SeenRead {
    /// Who keeps it.
    pub shard: ShardId,
    /// Its stamp as the shard keeps it.
    pub stamp: Stamp,
    /// It is a tombstone.
    pub tombstone: bool,
}

/// The stamp of a certified transaction.
#[derive(Debug)]
pub struct Certified {
    /// As which shard it is written.
    pub own: ShardId,
    /// All it depends on.
    pub stamp: Stamp,
    /// Where it writes, with the clocks drawn there.
    pub writes: Vec<(ShardId, Clock)>,
}

impl Transactions {
    /// It read a version. What is served after it was certified is a late repetition.
    pub fn read(&mut self, id: TransactionId, shard: ShardId, stamp: &Stamp, tombstone: bool) {
        let seen = self.seen.entry(id).or_default();
        if seen.certified.is_none() {
            seen.reads.push(SeenRead { shard, stamp: stamp.clone(), tombstone });
        }
    }

    /// A clock was drawn for it.
    pub fn drawn(&mut self, id: TransactionId, shard: ShardId, clock: Clock) {
        self.seen.entry(id).or_default().drawn.push((shard, clock, false));
    }

    /// Its clock was resolved.
    pub fn resolved(&mut self, id: TransactionId, shard: ShardId, clock: Clock, installed: bool) {
        let drawn = &mut self.seen.entry(id).or_default().drawn;
        let of_it = drawn.iter_mut().find(|it| (it.0, it.1) == (shard, clock));
        of_it.into_iter().for_each(|it| it.2 = installed);
    }

    /// It was certified.
    pub fn certified(
        &mut self,
        id: TransactionId,
        own: ShardId,
        stamp: &Stamp,
        writes: &[(ShardId, Clock)],
    ) -> &SeenAttempt {
        let seen = self.seen.entry(id).or_default();
        seen.certified = Some(Certified { own, stamp: stamp.clone(), writes: writes.to_vec() });
        seen
    }

    /// One of its versions was installed.
    pub fn installed(&mut self, id: TransactionId, shard: ShardId, stamp: &Stamp) -> &SeenAttempt {
        self.writers.insert((shard, stamp.epoch, stamp.clock), id);
        let seen = self.seen.entry(id).or_default();
        if !seen.installed.iter().any(|(other, kept)| (*other, kept) == (shard, stamp)) {
            seen.installed.push((shard, stamp.clone()));
        }
        seen
    }

    /// Who wrote the version with this stamp, as its shard keeps it, and what is known of them.
    pub fn writer(&self, shard: ShardId, stamp: &Stamp) -> Option<(TransactionId, &SeenAttempt)> {
        let id = self.writers.get(&(shard, stamp.epoch, stamp.clock))?;
        Some((*id, &self.seen[id]))
    }

    /// A client was told of it.
    pub fn told(&mut self, id: TransactionId) -> &SeenAttempt {
        let seen = self.seen.entry(id).or_default();
        seen.told = true;
        // What is told before is what it has read.
        seen.told_outcome |= seen.certified.is_some();
        seen
    }

    /// A client was told that it was rolled back.
    pub fn rolled_back(&mut self, id: TransactionId) -> &SeenAttempt {
        let seen = self.seen.entry(id).or_default();
        seen.told_rolled_back = true;
        seen
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (&TransactionId, &SeenAttempt)> {
        self.seen.iter()
    }
}
