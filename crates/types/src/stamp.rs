//! Stamps: the version vector clock of a transaction, stored sparsely (Mako §4.2, §6.1).
//!
//! A stamp assigns each shard a clock: of everything that happened on that shard, the transaction
//! depends on nothing later. Each participant keeps the stamp as it sees it: its own clock apart,
//! since that one also orders the versions of a key, and the others as a short sorted list.
//!
//! ```text
//! the stamp of a transaction on s0 and s2, which read what s5 is not yet done with
//!
//!   as s0 keeps it   e1  clock 17  [s2 4] [s5 90]
//!   as s2 keeps it   e1  clock  4  [s0 17] [s5 90]
//! ```
//!
//! A shard without an entry counts as [`Clock::ZERO`]: nothing there still has to become durable.
//! The entry of [`ShardId::EVERY`], the *floor*, stands for all shards that have none above it. It
//! appears only where a stamp outgrows its bound and is [collapsed](Stamp::collapse).
//!
//! # Order
//!
//! Within an epoch one stamp is at most another if it is so for every shard (Mako §4.2: a transaction that
//! depends on a transaction has a stamp at least as great). Between epochs the later one is the
//! greater, with any clocks: clocks are never compared across epochs, and a transaction meets a
//! version of an earlier epoch only once that version is durable (rule M8), when it no longer
//! constrains anything. So stamps form a lattice, [`Stamp::merge`] is its least upper bound, and
//! what a merge drops is exactly what an earlier epoch left behind.
//!
//! # Invariants
//!
//! The list is sorted by shard, names each shard once and never the shard that keeps it, holds no
//! [`Clock::ZERO`], and nothing at or below the floor.

use crate::clock::{Clock, Epoch};
use crate::id::ShardId;
use crate::wire::{Coded, short_elements};
use std::cmp::Ordering;

/// Entries that a stamp keeps when it is installed; see [`Stamp::collapse`].
///
/// More would make versions bigger and reads slower; fewer would make transactions wait for shards
/// they have nothing to do with. Mako §6.1 settles on this number too.
pub const REMOTE_CLOCKS_MAX: usize = 20;

// A version counts its entries in seven bits.
const _: () = assert!(REMOTE_CLOCKS_MAX <= 127);

/// One remote entry of a stamp: the greatest clock of `shard` that the transaction depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Coded)]
#[repr(C)]
pub struct RemoteClock {
    /// The shard whose clock this is.
    #[coded(short)]
    pub shard: ShardId,
    /// The greatest clock of that shard that is depended on.
    #[coded(short)]
    pub clock: Clock,
}

/// A transaction's stamp as one shard keeps it: its epoch, the clock that shard drew for it, and
/// entries for the other shards it depends on.
///
/// Two stamps kept by the same shard are equal if all their parts are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Coded)]
#[coded(check = Stamp::check)]
pub struct Stamp {
    /// The configuration under which the transaction was certified.
    #[coded(short)]
    pub epoch: Epoch,
    /// The clock of the shard that holds the stamp.
    #[coded(short)]
    pub clock: Clock,
    /// Entries for other shards; see the module's invariants.
    #[coded(short)]
    remote: Vec<RemoteClock>,
}

/// A borrowed [`Stamp`], as a version in the store holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampRef<'a> {
    /// See [`Stamp::epoch`].
    pub epoch: Epoch,
    /// See [`Stamp::clock`].
    pub clock: Clock,
    /// See [`Stamp`]; the module's invariants hold for it.
    pub remote: &'a [RemoteClock],
}

/// A stamp together with the shard that keeps it, which is all one needs to compare it with the
/// stamps that other shards keep.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The shard whose clock [`StampRef::clock`] is.
    pub own: ShardId,
    /// The stamp, as the shard `own` keeps it.
    pub stamp: StampRef<'a>,
}

impl Stamp {
    /// Refuses a stamp from outside that breaks an invariant of its own. Which shards exist, only its receiver knows.
    fn check(&self) -> std::result::Result<(), &'static str> {
        let floor = self.as_ref().floor();
        let ascend = self.remote.is_sorted_by(|one, two| one.shard < two.shard);
        // A stamp of nothing that was levelled has a floor of zero.
        let counts = |entry: &RemoteClock| entry.clock > floor || entry.shard == ShardId::EVERY;
        if ascend && self.remote.iter().all(counts) { Ok(()) } else { Err("no stamp") }
    }

    /// A stamp without remote entries: all that a single-shard transaction ever needs.
    pub fn local(epoch: Epoch, clock: Clock) -> Stamp {
        Stamp { epoch, clock, remote: Vec::new() }
    }

    /// The borrowed form of this stamp.
    pub fn as_ref(&self) -> StampRef<'_> {
        StampRef { epoch: self.epoch, clock: self.clock, remote: &self.remote }
    }

    /// See [`StampRef::seen_by`].
    pub fn seen_by(&self, own: ShardId) -> View<'_> {
        self.as_ref().seen_by(own)
    }

    /// Raises the entry of `shard` to `clock` at least. `own` keeps the stamp.
    pub fn push(&mut self, own: ShardId, shard: ShardId, clock: Clock) {
        if shard == own {
            self.clock = self.clock.max(clock);
        } else if clock > self.as_ref().floor() {
            match self.remote.binary_search_by_key(&shard, |entry| entry.shard) {
                Ok(at) => self.remote[at].clock = self.remote[at].clock.max(clock),
                Err(at) => self.remote.insert(at, RemoteClock { shard, clock }),
            }
            if shard == ShardId::EVERY {
                self.remote.retain(|entry| entry.shard == ShardId::EVERY || entry.clock > clock);
            }
        }
    }

    /// Raises this stamp, kept by `own`, to the least that is at least `other` as well: entry by
    /// entry the greater clock, or all of the stamp with the later epoch.
    pub fn merge(&mut self, own: ShardId, other: View<'_>) {
        match self.epoch.cmp(&other.stamp.epoch) {
            Ordering::Greater => return,
            Ordering::Less => *self = Stamp::local(other.stamp.epoch, Clock::ZERO),
            Ordering::Equal => {}
        }
        for entry in other.entries() {
            self.push(own, entry.shard, entry.clock);
        }
    }

    /// Drops the remote entries that `watermark` covers: what is durable needs no waiting for.
    /// Whether that watermark, or a greater one, covers the stamp stays the same. A watermark of
    /// another epoch drops nothing.
    pub fn prune(&mut self, watermark: &VectorWatermark) {
        if watermark.epoch() == self.epoch {
            self.remote.retain(|entry| watermark.of(entry.shard) < entry.clock);
        }
    }

    /// Bounds the remote entries to `max`, which is at least 1, by giving up the ones with the
    /// least clocks for a floor as high as they were (Mako §6.1). The stamp only grows, so all that
    /// depend on the transaction still do; but it now waits for shards it has nothing to do with.
    ///
    /// A node that installs a collapsed stamp therefore makes every shard's clock pass the floor, or
    /// an idle shard would hold the transaction back. And a coordinator collapses before it hands
    /// out the participants' stamps with [`View::kept_by`], or they would wait for different shards
    /// and a closing epoch could tear the transaction apart.
    ///
    /// # Panics
    /// If `max` is 0.
    pub fn collapse(&mut self, max: usize) {
        assert!(max > 0, "a floor takes an entry");
        if self.remote.len() <= max {
            return;
        }
        let mut clocks: Vec<Clock> = self.remote.iter().map(|entry| entry.clock).collect();
        // One place is the floor's own, so that max - 1 entries stay above it.
        let given_up = clocks.len() - max;
        let (_, floor, _) = clocks.select_nth_unstable(given_up);
        let floor = *floor;
        self.remote.retain(|entry| entry.clock > floor);
        self.remote.push(RemoteClock { shard: ShardId::EVERY, clock: floor });
    }
}

impl Stamp {
    /// Gives up all clocks for a single one that all shards have to reach: the greatest of them, rounded
    /// up to a multiple of `width`. What [`collapse`](Stamp::collapse) says of floors holds for it.
    pub fn level(&mut self, width: u64) {
        let greatest = self.remote.iter().map(|entry| entry.clock).fold(self.clock, Clock::max);
        let clock = Clock(greatest.0.next_multiple_of(width));
        self.remote.clear();
        self.remote.push(RemoteClock { shard: ShardId::EVERY, clock });
    }
}

impl<'a> StampRef<'a> {
    /// This stamp, kept by `own`, as one to compare.
    #[inline]
    pub fn seen_by(self, own: ShardId) -> View<'a> {
        View { own, stamp: self }
    }

    /// The clock of `shard` in this stamp, which `own` keeps.
    pub fn entry(self, own: ShardId, shard: ShardId) -> Clock {
        let floor = self.floor();
        if shard == own {
            return self.clock.max(floor);
        }
        match self.remote.binary_search_by_key(&shard, |entry| entry.shard) {
            Ok(at) => self.remote[at].clock,
            Err(_) => floor,
        }
    }

    /// Whether every shard has come as far as this stamp, which `own` keeps, says; `reached` shows how far a shard
    /// has, and for [`ShardId::EVERY`] how far all have.
    #[inline]
    pub fn is_reached(self, own: ShardId, reached: impl Fn(ShardId) -> Clock) -> bool {
        self.clock <= reached(own)
            && self.remote.iter().all(|entry| entry.clock <= reached(entry.shard))
    }

    /// Copies it, with its remote clocks, into memory of its own.
    pub fn to_stamp(self) -> Stamp {
        Stamp { epoch: self.epoch, clock: self.clock, remote: self.remote.to_vec() }
    }

    /// The clock of all shards without an entry.
    #[inline]
    fn floor(self) -> Clock {
        match self.remote.last() {
            Some(RemoteClock { shard: ShardId::EVERY, clock }) => *clock,
            _ => Clock::ZERO,
        }
    }
}

impl<'a> View<'a> {
    /// The clock up to which it depends on `shard`.
    pub fn entry(self, shard: ShardId) -> Clock {
        self.stamp.entry(self.own, shard)
    }

    /// The same stamp as `own` keeps it, which drew the clock `drawn` for the transaction. All
    /// participants' stamps are made from one, so that a watermark covers all of them or none.
    ///
    /// # Panics
    /// If `drawn` is not its entry, nor below a floor that hides it.
    pub fn kept_by(self, own: ShardId, drawn: Clock) -> Stamp {
        let floor = self.stamp.floor();
        assert!(self.entry(own) == drawn.max(floor), "{own} drew {drawn}, not as in {self:?}");
        let mut stamp = Stamp::local(self.stamp.epoch, drawn);
        stamp.merge(own, self);
        stamp
    }

    /// All entries, the own one first.
    fn entries(self) -> impl Iterator<Item = RemoteClock> + 'a {
        let own = RemoteClock { shard: self.own, clock: self.stamp.clock };
        std::iter::once(own).chain(self.stamp.remote.iter().copied())
    }

    /// Whether no shard's clock is above that of `other`, a stamp of the same epoch.
    fn is_below(self, other: View<'_>) -> bool {
        // The floor is an entry too, and stands for the shards that neither names.
        self.entries().all(|entry| entry.clock <= other.entry(entry.shard))
    }
}

impl PartialOrd for View<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let by_epoch = self.stamp.epoch.cmp(&other.stamp.epoch);
        if by_epoch != Ordering::Equal {
            return Some(by_epoch);
        }
        match (self.is_below(*other), other.is_below(*self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }
}

impl PartialEq for View<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

/// The vector watermark of one epoch: for each shard, the clock up to which it is durable. At the
/// epoch's end the same type holds its final value.
#[derive(Debug, Clone, PartialEq, Eq, Coded)]
pub struct VectorWatermark {
    #[coded(short)]
    epoch: Epoch,
    #[coded(with = short_elements)]
    clocks: Vec<Clock>,
}

impl VectorWatermark {
    /// The watermark at the beginning of `epoch`, in a configuration whose shards are numbered
    /// below `shards`.
    pub fn new(epoch: Epoch, shards: usize) -> VectorWatermark {
        VectorWatermark { epoch, clocks: vec![Clock::ZERO; shards] }
    }

    /// The watermark of an epoch of which nothing was lost: it covers everything.
    pub fn whole(epoch: Epoch, shards: usize) -> VectorWatermark {
        VectorWatermark { epoch, clocks: vec![Clock::MAX; shards] }
    }

    /// How many shards it concerns.
    pub fn shards(&self) -> usize {
        self.clocks.len()
    }

    /// Whether it covers everything of its epoch.
    pub fn is_whole(&self) -> bool {
        self.clocks.iter().all(|clock| *clock == Clock::MAX)
    }

    /// The epoch it concerns. Of other epochs it says nothing.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How far `shard` is durable, or for [`ShardId::EVERY`] how far all are. A shard outside the
    /// configuration is not.
    #[inline]
    pub fn of(&self, shard: ShardId) -> Clock {
        if shard == ShardId::EVERY {
            return self.clocks.iter().copied().min().unwrap_or(Clock::ZERO);
        }
        self.clocks.get(shard.0 as usize).copied().unwrap_or(Clock::ZERO)
    }

    /// Raises the watermark of `shard` to `clock` at least, and says whether that changed it. A
    /// shard outside the configuration changes nothing.
    pub fn raise(&mut self, shard: ShardId, clock: Clock) -> bool {
        match self.clocks.get_mut(shard.0 as usize) {
            Some(own) if *own < clock => {
                *own = clock;
                true
            }
            _ => false,
        }
    }

    /// Raises every shard's watermark to that of `other`, and says whether that changed any. A
    /// watermark of another epoch changes nothing.
    pub fn merge(&mut self, other: &VectorWatermark) -> bool {
        let same_epoch = self.epoch == other.epoch;
        let clocks = other.clocks.iter().filter(|_| same_epoch);
        (0..)
            .zip(clocks)
            .fold(false, |changed, (shard, clock)| self.raise(ShardId(shard), *clock) | changed)
    }

    /// Whether all that `stamp`, kept by `own`, depends on is durable. Stamps of other epochs are
    /// not covered, though the watermark of their own epoch may cover them.
    #[inline]
    pub fn covers(&self, own: ShardId, stamp: StampRef<'_>) -> bool {
        self.epoch == stamp.epoch && stamp.is_reached(own, |shard| self.of(shard))
    }
}

impl PartialOrd for VectorWatermark {
    /// Shard by shard; watermarks of different epochs, or configurations, do not compare.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        if (self.epoch, self.clocks.len()) != (other.epoch, other.clocks.len()) {
            return None;
        }
        let pairs = self.clocks.iter().zip(&other.clocks);
        let below = pairs.clone().all(|(one, two)| one <= two);
        let above = pairs.clone().all(|(one, two)| one >= two);
        match (below, above) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
