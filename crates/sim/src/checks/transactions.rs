//! What the checks have seen of every transaction: its reads, its stamp, what it installed and what clients
//! received.

use shoal_engine::TransactionId;
use shoal_types::{Clock, Epoch, ShardId, Stamp};
use std::collections::{BTreeMap, BTreeSet};

/// All attempts that were seen, by transaction id.
#[derive(Debug, Default)]
pub struct Transactions {
    seen: BTreeMap<TransactionId, SeenAttempt>,
    /// The transaction that drew each clock: its stamp contains what a version with this clock depends on.
    writers: BTreeMap<(ShardId, Epoch, Clock), TransactionId>,
}

/// One attempt at a transaction.
#[derive(Debug, Default)]
pub struct SeenAttempt {
    /// The versions that it read before it was certified.
    pub reads: Vec<SeenRead>,
    /// Its stamp, once it is certified.
    pub certified: Option<Certified>,
    /// The shards on which it installed versions, and the stamps of those as the shards keep them.
    pub installed: Vec<(ShardId, Stamp)>,
    /// Versions that followers applied, and no leader was seen to install: it stopped before.
    pub followed: BTreeSet<(ShardId, Clock)>,
    /// The clocks that were drawn for it, and whether each was resolved as installed: a branch that had only
    /// absent keys to delete installs no version.
    pub drawn: Vec<(ShardId, Clock, bool)>,
    /// A client received a result of it.
    pub reported: bool,
    /// A client learned that it has committed.
    pub reported_outcome: bool,
    /// A client learned that it was rolled back with its epoch.
    pub reported_rolled_back: bool,
}

/// A version that was read.
#[derive(Debug)]
pub struct SeenRead {
    /// The shard that keeps it.
    pub shard: ShardId,
    /// Its stamp as the shard keeps it.
    pub stamp: Stamp,
    /// Whether it is a tombstone.
    pub tombstone: bool,
}

/// The stamp of a certified transaction.
#[derive(Debug)]
pub struct Certified {
    /// The shard on whose behalf `stamp` is written: its own entry is this shard's.
    pub own: ShardId,
    /// All that the transaction depends on.
    pub stamp: Stamp,
    /// The shards that it writes, with the clocks drawn there.
    pub writes: Vec<(ShardId, Clock)>,
}

impl Transactions {
    /// The transaction has read a version. Reads served after it was certified are late repetitions and are
    /// not recorded.
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

    /// A clock of the transaction was resolved.
    pub fn resolved(&mut self, id: TransactionId, shard: ShardId, clock: Clock, installed: bool) {
        let drawn = &mut self.seen.entry(id).or_default().drawn;
        let of_it = drawn.iter_mut().find(|it| (it.0, it.1) == (shard, clock));
        // A leader that was deposed drops what its successor has installed (two-phase-commit, seed 268515842).
        of_it.into_iter().for_each(|it| it.2 |= installed);
    }

    /// A coordinator has validated a transaction everywhere, and made its stamp.
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

    /// A version of the transaction was installed.
    pub fn installed(&mut self, id: TransactionId, shard: ShardId, stamp: &Stamp) -> &SeenAttempt {
        self.writers.insert((shard, stamp.epoch, stamp.clock), id);
        let seen = self.seen.entry(id).or_default();
        if !seen.installed.iter().any(|(other, kept)| (*other, kept) == (shard, stamp)) {
            seen.installed.push((shard, stamp.clone()));
        }
        seen
    }

    /// A follower has applied the version with this stamp, which no leader was seen to install. Returns whether a transaction drew
    /// its clock: the leader stopped before it had installed all versions on the shard, or the next one did not install this
    /// version, since a copy had brought it (two-phase-commit, seed 8394378).
    pub fn follow(&mut self, shard: ShardId, stamp: &Stamp) -> bool {
        let has_drawn = |seen: &&mut SeenAttempt| {
            let has_version = |certified: &Certified| {
                certified.stamp.epoch == stamp.epoch
                    && certified.writes.contains(&(shard, stamp.clock))
            };
            // One that was handed over whole is certified where it is installed, and the leader stopped before that.
            seen.certified.as_ref().is_none_or(has_version)
                && seen.drawn.iter().any(|it| (it.0, it.1) == (shard, stamp.clock))
        };
        let seen = self.seen.values_mut().find(has_drawn);
        seen.is_some_and(|seen| {
            seen.followed.insert((shard, stamp.clock));
            true
        })
    }

    /// The writer of the version with this stamp, as its shard keeps it, and what was seen of it.
    pub fn writer(&self, shard: ShardId, stamp: &Stamp) -> Option<(TransactionId, &SeenAttempt)> {
        let id = self.writers.get(&(shard, stamp.epoch, stamp.clock))?;
        Some((*id, &self.seen[id]))
    }

    /// A client received a result of the transaction.
    pub fn reported(&mut self, id: TransactionId) -> &SeenAttempt {
        let seen = self.seen.entry(id).or_default();
        seen.reported = true;
        // A reply before certification reveals what the transaction has read, and not an outcome.
        seen.reported_outcome |= seen.certified.is_some();
        seen
    }

    /// A client learned that the transaction was rolled back with its epoch.
    pub fn rolled_back(&mut self, id: TransactionId) -> &SeenAttempt {
        let seen = self.seen.entry(id).or_default();
        seen.reported_rolled_back = true;
        seen
    }

    /// All transactions that were seen, in the order of their ids.
    pub fn all(&self) -> impl Iterator<Item = (&TransactionId, &SeenAttempt)> {
        self.seen.iter()
    }
}
