//! The nodes of the index: what they hold, how they are searched, read and changed.
//!
//! ```text
//! header: | version 8 | shape 8: count, prefix length | prefix 32 | level 1 |   one cache line
//! leaf:   header | heads 8 each | records 8 each |
//! inner:  header | heads 8 each | children 8 each, one more | separators 8 each |
//! ```
//! All keys of a node share its **prefix**; a **head** is the eight bytes of a key behind it
//! (`key.rs`). A search compares the prefix once, then heads, and looks at a whole key only where
//! heads are equal. The prefix comes from the keys that are there; a key that does not share it
//! makes it shorter. The header holds its first 32 bytes; the rest of a longer one is read from a key
//! of the node, one that the search has found by its head where it can.
//!
//! Concurrency contract (optimistic lock coupling: Leis et al., DaMoN'16). The version word is
//! `| counter 62 | obsolete 1 | latched 1 |`. A writer latches the node, changes it, and raises the
//! counter with the release. A reader notes an unlatched version, reads, and uses what it read
//! only if the version is still the same. All fields are atomics, so such a read is never undefined,
//! only wrong; every pointer it may find leads to memory that its guard keeps (`reclaim.rs`),
//! because a slot is written before the count that covers it.
//!
//! Invariants: heads ascend within the count; an obsolete node never changes again.

use crate::faults::{StoreBug, StoreBugs};
use crate::key::{common_prefix, head_at};
use crate::sync::{AtomicPtr, AtomicU64, Ordering, fence, spin_loop};
use crate::work::{self, Work};
use std::cmp;
use std::hint::select_unpredictable;

const PREFIX_WORDS: usize = 4;
/// The bytes of the prefix that are in the header.
const PREFIX_BYTES_INLINE: usize = PREFIX_WORDS * 8;
/// Keys that share up to so many bytes more are distinguished by the heads as well, without a look at a key.
const PREFIX_BYTES_SLACK: usize = 4;

const LATCHED: u64 = 1;
const OBSOLETE: u64 = 2;
const COUNTER_STEP: u64 = 4;

/// The fields that leaves and inner nodes share.
#[repr(C, align(64))]
pub(crate) struct Header {
    version: AtomicU64,
    shape: AtomicU64,
    prefix: [AtomicU64; PREFIX_WORDS],
    /// 0 for a leaf, else the distance to the leaves. Never changes.
    level: u8,
}

/// How many entries a node has and how long their common prefix is, read together.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) count: usize,
    pub(super) prefix_bytes: usize,
}

/// The result of a search in a node.
#[derive(Clone, Copy)]
pub(crate) struct NodePlace {
    /// Index of the first entry whose key is not below the one sought.
    pub(crate) at: usize,
    /// Whether that entry's key is the one sought.
    pub(crate) equal: bool,
}

impl Header {
    pub(super) fn new(level: u8) -> Header {
        Header {
            version: AtomicU64::new(0),
            shape: AtomicU64::new(0),
            prefix: std::array::from_fn(|_| AtomicU64::new(0)),
            level,
        }
    }

    /// 0 for a leaf, else the distance to the leaves.
    #[inline]
    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// The version once the latch is free; `None` if the node is obsolete.
    #[inline]
    pub(crate) fn stable_version(&self, faults: StoreBugs) -> Option<u64> {
        let unstable = if faults.has(StoreBug::LatchedIsStable) { 0 } else { LATCHED };
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version & (unstable | OBSOLETE) == 0 {
                return Some(version);
            }
            if version & OBSOLETE != 0 {
                return None;
            }
            spin_loop();
        }
    }

    /// Whether nothing that was read since `version` was noted has changed.
    #[inline]
    pub(crate) fn is_unchanged(&self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Like [`is_unchanged`](Header::is_unchanged), for the end of a transaction: sequentially consistent with the
    /// locks of its write set; waits while the latch is held.
    pub(crate) fn validate(&self, version: u64) -> bool {
        loop {
            let now = self.version.load(Ordering::SeqCst);
            if now & LATCHED == 0 {
                return now == version;
            }
            if now & !LATCHED != version {
                return false;
            }
            spin_loop();
        }
    }

    /// Takes the latch if the node is still at `version`.
    pub(crate) fn latch(&self, version: u64) -> Option<Latch<'_>> {
        // One that is latched already is not at a version at which it could be.
        if version & LATCHED != 0 {
            return None;
        }
        debug_assert!(version & OBSOLETE == 0, "latched a node at version {version}");
        self.version
            .compare_exchange(version, version | LATCHED, Ordering::SeqCst, Ordering::Relaxed)
            .ok()?;
        // A reader that sees one of the changes that follow also sees the latch.
        fence(Ordering::Release);
        Some(Latch { header: self, version, release: version })
    }

    pub(super) fn shape(&self) -> Shape {
        // Acquire: the slots that the count covers were written before it.
        let shape = self.shape.load(Ordering::Acquire);
        Shape { count: (shape & 0xffff) as usize, prefix_bytes: (shape >> 16) as usize }
    }

    pub(super) fn set_shape(&self, shape: Shape) {
        let word = shape.count as u64 | (shape.prefix_bytes as u64) << 16;
        self.shape.store(word, Ordering::Release);
    }

    /// Number of entries; of separators in an inner node.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.shape().count
    }

    /// How `key` compares with every key that begins with the part of the prefix in the header.
    #[inline]
    fn compare_prefix(&self, shape: Shape, key: &[u8]) -> cmp::Ordering {
        let mut offset = 0;
        while offset < shape.prefix_bytes.min(PREFIX_BYTES_INLINE) {
            let bytes = (shape.prefix_bytes - offset).min(8);
            let mask = u64::MAX << (8 * (8 - bytes));
            let ours = head_at(key, offset) & mask;
            let theirs = self.prefix[offset / 8].load(Ordering::Relaxed);
            if ours != theirs {
                return ours.cmp(&theirs);
            }
            offset += 8;
        }
        cmp::Ordering::Equal
    }

    fn set_prefix(&self, key: &[u8], bytes: usize) {
        for (word, offset) in self.prefix.iter().zip((0..).step_by(8)) {
            let kept = bytes.saturating_sub(offset).min(8) as u32;
            let mask = u64::MAX.checked_shl(64 - 8 * kept).unwrap_or(0);
            word.store(head_at(key, offset) & mask, Ordering::Relaxed);
        }
    }
}

/// A latched node. Releases the latch when dropped; with a new version if it was changed.
pub(crate) struct Latch<'n> {
    header: &'n Header,
    version: u64,
    release: u64,
}

impl Latch<'_> {
    /// The node is about to change.
    pub(crate) fn change(&mut self) {
        self.release = self.version + COUNTER_STEP;
    }

    /// The node has left the tree.
    pub(crate) fn obsolete(&mut self) {
        self.release = (self.version + COUNTER_STEP) | OBSOLETE;
    }

    /// The version that the release will show, and the one before.
    pub(crate) fn versions(&self) -> (u64, u64) {
        (self.version, self.release)
    }
}

impl Drop for Latch<'_> {
    fn drop(&mut self) {
        self.header.version.store(self.release, Ordering::SeqCst);
    }
}

/// How many of the ascending `heads` are below `head`, without a branch that could be mispredicted.
#[inline]
fn count_below(heads: &[AtomicU64], head: u64) -> usize {
    let (mut base, mut length) = (0, heads.len());
    if length == 0 {
        return 0;
    }
    while length > 1 {
        let half = length / 2;
        let below = heads[base + half - 1].load(Ordering::Relaxed) < head;
        base = select_unpredictable(below, base + half, base);
        length -= half;
    }
    base + usize::from(heads[base].load(Ordering::Relaxed) < head)
}

/// A node whose entries are sorted by keys that can be looked at one by one.
pub(super) trait Entries {
    fn header(&self) -> &Header;
    fn heads(&self) -> &[AtomicU64];

    /// The whole key of an entry; `None` where a reader raced with a writer and there is none.
    fn key(&self, at: usize) -> Option<&[u8]>;

    /// Finds `key`. `None` asks a reader that raced with a writer to begin again.
    #[inline]
    fn find(&self, key: &[u8]) -> Option<NodePlace> {
        let shape = self.header().shape();
        let heads = &self.heads()[..shape.count];
        match self.header().compare_prefix(shape, key) {
            cmp::Ordering::Less => return Some(NodePlace { at: 0, equal: false }),
            cmp::Ordering::Greater => return Some(NodePlace { at: heads.len(), equal: false }),
            cmp::Ordering::Equal => {}
        }
        let head = head_at(key, shape.prefix_bytes);
        let at = count_below(heads, head);
        if shape.prefix_bytes > PREFIX_BYTES_INLINE && shape.count > 0 {
            match compare_beyond(self.key(at.min(shape.count - 1))?, shape, key)? {
                cmp::Ordering::Less => return Some(NodePlace { at: 0, equal: false }),
                cmp::Ordering::Greater => return Some(NodePlace { at: heads.len(), equal: false }),
                cmp::Ordering::Equal => {}
            }
        }
        if at == heads.len() || heads[at].load(Ordering::Relaxed) != head {
            return Some(NodePlace { at, equal: false });
        }
        work::count(Work::KeyCompared);
        match self.key(at)?.cmp(key) {
            cmp::Ordering::Less => self.find_behind(at, heads, head, key),
            order => Some(NodePlace { at, equal: order.is_eq() }),
        }
    }

    /// Finds `key` behind the entry at `at`, which has its `head` and is below it.
    fn find_behind(
        &self,
        at: usize,
        heads: &[AtomicU64],
        head: u64,
        key: &[u8],
    ) -> Option<NodePlace> {
        let alike = head.checked_add(1).map_or(heads.len(), |above| count_below(heads, above));
        let (mut low, mut high) = (at + 1, alike);
        while low < high {
            let middle = low.midpoint(high);
            work::count(Work::KeyCompared);
            match self.key(middle)?.cmp(key) {
                cmp::Ordering::Less => low = middle + 1,
                cmp::Ordering::Equal => return Some(NodePlace { at: middle, equal: true }),
                cmp::Ordering::Greater => high = middle,
            }
        }
        Some(NodePlace { at: low, equal: false })
    }

    /// The first entry that has the head of `key`.
    fn find_head(&self, key: &[u8]) -> Option<usize> {
        let shape = self.header().shape();
        let heads = &self.heads()[..shape.count];
        let head = head_at(key, shape.prefix_bytes);
        let at = count_below(heads, head);
        (heads.get(at)?.load(Ordering::Relaxed) == head).then_some(at)
    }

    /// Sets the count, and prefix and heads anew from the keys that are there.
    ///
    /// REQUIRES: latched or private, as for all that changes a node.
    fn rebuild(&self, count: usize) {
        let Some(last) = count.checked_sub(1) else {
            return self.header().set_shape(Shape { count: 0, prefix_bytes: 0 });
        };
        let (first, last) = (self.latched_key(0), self.latched_key(last));
        let shared = common_prefix(first, last);
        // A single key does not predict its neighbours' common prefix; half of it is a guess.
        let prefix_bytes = worthwhile(if count == 1 { shared / 2 } else { shared });
        self.reshape(first, prefix_bytes, count);
    }

    /// Sets the count, the prefix to the first bytes of `like`, and the heads by it.
    fn reshape(&self, like: &[u8], prefix_bytes: usize, count: usize) {
        // Without a key there is none to read the rest from.
        let most = if count == 0 { PREFIX_BYTES_INLINE } else { usize::MAX };
        let prefix_bytes = prefix_bytes.min(most);
        self.header().set_prefix(like, prefix_bytes);
        for (at, head) in self.heads()[..count].iter().enumerate() {
            head.store(head_at(self.latched_key(at), prefix_bytes), Ordering::Relaxed);
        }
        self.header().set_shape(Shape { count, prefix_bytes });
    }

    /// Shortens the prefix until `key` shares it.
    fn admit(&self, key: &[u8]) {
        let shape = self.header().shape();
        let beyond = || match shape.count {
            0 => false,
            _ => compare_beyond(self.latched_key(0), shape, key).is_some_and(cmp::Ordering::is_eq),
        };
        if self.header().compare_prefix(shape, key).is_eq()
            && key.len() >= shape.prefix_bytes
            && (shape.prefix_bytes <= PREFIX_BYTES_INLINE || beyond())
        {
            return;
        }
        let prefix_bytes = match shape.count {
            0 => 0,
            _ => common_prefix(self.latched_key(0), key).min(shape.prefix_bytes),
        };
        self.reshape(key, prefix_bytes, shape.count);
    }

    /// Lengthens the prefix to what the keys share, where all heads are equal and so useless: a node at the edge, where keys come in order, begins before their common prefix is known.
    fn sharpen(&self) {
        let Shape { count, prefix_bytes } = self.header().shape();
        let heads = &self.heads()[..count];
        let head = |at: usize| heads[at].load(Ordering::Relaxed);
        if count < 2 || head(0) != head(count - 1) {
            return;
        }
        let shared = common_prefix(self.latched_key(0), self.latched_key(count - 1));
        if worthwhile(shared) > prefix_bytes {
            self.rebuild(count);
        }
    }

    fn latched_key(&self, at: usize) -> &[u8] {
        self.key(at).expect("an entry within the count of a latched node")
    }
}

/// How `key` compares with every key that begins with the prefix, where those bytes of the prefix are
/// equal that stand in the header. `like` is one of the node's keys; `None` asks a reader that raced with
/// a writer to begin again.
fn compare_beyond(like: &[u8], shape: Shape, key: &[u8]) -> Option<cmp::Ordering> {
    let theirs = like.get(PREFIX_BYTES_INLINE..shape.prefix_bytes)?;
    let ours = key.get(PREFIX_BYTES_INLINE..).unwrap_or_default();
    work::count(Work::KeyCompared);
    Some(ours[..ours.len().min(theirs.len())].cmp(theirs))
}

/// How much of what keys share is worth having as their prefix: what does not fit the header costs a look
/// at a key.
fn worthwhile(shared: usize) -> usize {
    match shared {
        ..=PREFIX_BYTES_INLINE => shared,
        _ if shared <= PREFIX_BYTES_INLINE + PREFIX_BYTES_SLACK => PREFIX_BYTES_INLINE,
        _ => shared,
    }
}

/// Moves the slots from `at` on one place up.
pub(super) fn open_gap<T>(at: usize, count: usize, copy: impl Fn(usize, usize) -> T) {
    for from in (at..count).rev() {
        copy(from, from + 1);
    }
}

/// Moves the slots behind `at` one place down, over it.
pub(super) fn close_gap<T>(at: usize, count: usize, copy: impl Fn(usize, usize) -> T) {
    for from in at + 1..count {
        copy(from, from - 1);
    }
}

pub(super) fn copy_slot<T>(slots: &[AtomicPtr<T>], from: usize, to: usize) {
    slots[to].store(slots[from].load(Ordering::Relaxed), Ordering::Release);
}

pub(super) fn copy_head(heads: &[AtomicU64], from: usize, to: usize) {
    heads[to].store(heads[from].load(Ordering::Relaxed), Ordering::Relaxed);
}

/// The shortest beginning of `right` that is above `left`.
pub(super) fn shortest_separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    &right[..(common_prefix(left, right) + 1).min(right.len())]
}
