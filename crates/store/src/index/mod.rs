//! The index: an ordered concurrent map from keys to records.
//!
//! A B+-tree with optimistic lock coupling (Leis et al., DaMoN'16). Readers go down without writing
//! anything: at each node they note the version, find the child, and check that the version is still
//! the same after they have noted the child's. An operation that meets a change begins again at the root.
//!
//! Writers split full nodes and merge sparse ones on their way down, so that a change never has to
//! go up again: it latches at most a parent and two of its children, from top to bottom and left to
//! right; a writer that holds a latch never waits for one above.
//!
//! Leaves do not point at each other. A scan takes a leaf at a time (`scan.rs`) and goes down again
//! for the next, along the separators it passed; so a merge has no neighbour to update.
//!
//! The leaf versions double as phantom protection (Silo, SOSP'13 §4.6): a version changes when a key
//! enters or leaves the leaf, and when the leaf's bounds change; not when a record gets a new value.
//!
//! Read `node.rs` first, then `leaf.rs` and `inner.rs`, then this file.

mod inner;
mod leaf;
mod node;
mod scan;

#[cfg(all(test, not(feature = "model")))]
mod tests;

pub(crate) use inner::{Inner, Separator};
pub(crate) use leaf::{LEAF_MAX, Leaf};
pub(crate) use scan::Seek;

use crate::faults::{StoreBug, StoreBugs};
use crate::guarded::Guarded;
use crate::memory::{Heap, prefetch};
use crate::reclaim::{Memory, Retired};
use crate::record::Record;
use crate::sync::{AtomicPtr, Ordering, spin_loop};
use inner::INNER_MAX;
use node::{Header, Latch};
use std::ptr::NonNull;

/// A node with fewer entries than this looks for a neighbour to merge with when a key is removed. Under
/// the permutation tester that is a leaf with one key, so that there are merges at all.
const SPARSE: usize = if cfg!(feature = "model") { 2 } else { LEAF_MAX / 4 };
/// Merging must leave room, or the next insertion would split again.
const MERGED_LEAF_MAX: usize = LEAF_MAX * 3 / 4;
const MERGED_INNER_MAX: usize = INNER_MAX * 3 / 4;

// Two sparse neighbours always fit.
const _: () = assert!(2 * (SPARSE - 1) <= MERGED_LEAF_MAX);
const _: () = assert!(2 * (SPARSE - 1) < MERGED_INNER_MAX);

/// The ordered index from keys to records.
pub(crate) struct Index {
    root: AtomicPtr<Header>,
    faults: StoreBugs,
}

/// A leaf as it was at one version: what a transaction remembers of a gap or a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LeafVersion {
    pub(crate) leaf: NonNull<Leaf>,
    pub(crate) version: u64,
}

impl LeafVersion {
    /// No key has entered or left since.
    ///
    /// # Safety
    /// Under the guard under which it was noted.
    pub(crate) unsafe fn validate(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.leaf.as_ref() }.header().validate(self.version)
    }
}

/// The result of a lookup.
pub(crate) enum Lookup {
    /// The record of the key, which may be a placeholder or have a tombstone; and the leaf that has it.
    Found(NonNull<Record>, NonNull<Leaf>),
    /// No record; the leaf where it would be.
    Absent(LeafVersion),
}

/// A lookup that goes down one level at a time, so that several can wait for memory together. It is
/// not validated: what it finds is a hint.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    node: NonNull<Header>,
}

impl Probe {
    /// Goes down one level towards `key` and asks for what it will look at next. Returns
    /// false at a leaf.
    ///
    /// # Safety
    /// Under the guard under which it began.
    pub(crate) unsafe fn descend(&mut self, key: &[u8]) -> bool {
        // SAFETY: the caller's promise.
        let Kind::Inner(inner) = kind(unsafe { Guarded::new(self.node) }) else { return false };
        let Some(child) = inner.place_of(key).and_then(|place| inner.child(place)) else {
            return false;
        };
        prefetch_node(child, inner.header().level() - 1);
        self.node = child;
        true
    }

    /// In a leaf: the record whose head is that of `key`; and asks for it.
    ///
    /// # Safety
    /// As for [`descend`](Probe::descend).
    pub(crate) unsafe fn record(self, key: &[u8]) -> Option<NonNull<Record>> {
        // SAFETY: the caller's promise.
        let Kind::Leaf(leaf) = kind(unsafe { Guarded::new(self.node) }) else { return None };
        let record = leaf.likely_record(key)?;
        prefetch(record.as_ptr(), size_of::<Record>() + 1);
        Some(record)
    }
}

/// The result of an insertion.
pub(crate) enum Insertion {
    /// The record is in the index.
    Inserted,
    /// The key was there already.
    Exists(NonNull<Record>),
}

/// A leaf that an insertion changed: a transaction that noted it before may note its new version.
pub(crate) struct LeafChange {
    pub(crate) leaf: NonNull<Leaf>,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The new leaf to the right, where it was split.
    pub(crate) split: Option<LeafVersion>,
}

/// A node on the way down, at the version at which it was read.
struct Step<'t, N> {
    node: Guarded<'t, N>,
    version: u64,
}

// Not derived: that would ask the node to be `Copy`.
impl<N> Clone for Step<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<N> Copy for Step<'_, N> {}

/// A node, by what it is.
enum Kind<'t> {
    Leaf(Guarded<'t, Leaf>),
    Inner(Guarded<'t, Inner>),
}

/// Distinguishes leaves from inner nodes.
#[inline]
fn kind(node: Guarded<'_, Header>) -> Kind<'_> {
    // SAFETY: a header stands at the beginning of a leaf where its level is 0, else of an inner
    // node; both are repr(C).
    unsafe {
        match node.level() {
            0 => Kind::Leaf(node.cast()),
            _ => Kind::Inner(node.cast()),
        }
    }
}

/// [`prefetch`] of the part of a node that a search looks at.
#[inline]
fn prefetch_node(node: NonNull<Header>, level: u8) {
    prefetch(node.as_ptr(), if level == 0 { size_of::<Leaf>() } else { Inner::SEARCHED_BYTES });
}

impl Index {
    pub(crate) fn new(heap: &mut Heap, faults: StoreBugs) -> Index {
        Index { root: AtomicPtr::new(Leaf::allocate(heap).cast().as_ptr()), faults }
    }

    /// The root at a version at which it was the root.
    #[inline]
    fn root<'t>(&self) -> Option<Step<'t, Header>> {
        let root = self.root.load(Ordering::Acquire);
        // SAFETY: the caller's guard keeps it.
        let node = unsafe { Guarded::at(root) }.expect("there is always a root");
        let version = node.stable_version(self.faults)?;
        // A root that was split since it was loaded is only the left half.
        let checked =
            self.faults.has(StoreBug::RootUnchecked) || self.root.load(Ordering::Acquire) == root;
        checked.then_some(Step { node, version })
    }

    /// Descends to the child at `place`, and notes its version.
    #[inline]
    fn down<'t>(&self, from: Step<'t, Inner>, place: usize) -> Option<Step<'t, Header>> {
        let child = from.node.child(place)?;
        prefetch_node(child, from.node.header().level() - 1);
        // SAFETY: kept by the caller's guard.
        let node: Guarded<'t, Header> = unsafe { Guarded::new(child) };
        let version = node.stable_version(self.faults)?;
        let checked = self.faults.has(StoreBug::ParentUnchecked)
            || from.node.header().is_unchanged(from.version);
        checked.then_some(Step { node, version })
    }

    /// Finds `key`.
    ///
    /// # Safety
    /// The caller holds a guard for as long as it uses what it is given; so for all that follow.
    #[inline]
    pub(crate) unsafe fn get(&self, key: &[u8]) -> Lookup {
        loop {
            if let Some(found) = self.try_get(key) {
                return found;
            }
            spin_loop();
        }
    }

    #[inline]
    fn try_get(&self, key: &[u8]) -> Option<Lookup> {
        let mut step = self.root()?;
        loop {
            let Step { node, version } = step;
            match kind(node) {
                Kind::Inner(node) => {
                    step = self.down(Step { node, version }, node.place_of(key)?)?;
                }
                Kind::Leaf(leaf) => {
                    let place = leaf.find(key)?;
                    let record = if place.equal { leaf.record(place.at) } else { None };
                    let checked =
                        self.faults.has(StoreBug::LookupUnchecked) || node.is_unchanged(version);
                    return checked.then(|| match record {
                        Some(record) => Lookup::Found(record, leaf.pointer()),
                        None => Lookup::Absent(LeafVersion { leaf: leaf.pointer(), version }),
                    });
                }
            }
        }
    }

    /// Where a lookup begins, for [`Probe`].
    ///
    /// # Safety
    /// As for [`get`](Index::get).
    pub(crate) unsafe fn probe(&self) -> Probe {
        let root = self.root.load(Ordering::Acquire);
        Probe { node: NonNull::new(root).expect("there is always a root") }
    }

    /// Puts `record` into `leaf`, where a search for its key ended; `None` if that has changed since,
    /// or has no room.
    ///
    /// # Safety
    /// As for [`insert`](Index::insert).
    pub(crate) unsafe fn insert_at(
        &self,
        record: NonNull<Record>,
        at: LeafVersion,
    ) -> Option<LeafChange> {
        // SAFETY: the record is the caller's; the leaf is kept by its guard.
        let (key, leaf) = unsafe { (Record::key(record), at.leaf.as_ref()) };
        let mut latch = leaf.header().latch(at.version)?;
        if leaf.header().count() == LEAF_MAX {
            return None;
        }
        let place = leaf.find(key)?;
        assert!(!place.equal, "{key:?} was absent at this version");
        leaf.insert(place.at, key, record);
        if !self.faults.has(StoreBug::SilentInsertion) {
            latch.change();
        }
        let (from, to) = latch.versions();
        Some(LeafChange { leaf: at.leaf, from, to, split: None })
    }

    /// Puts `record` into the index under its key, unless the key is there. `changed` is called
    /// with each leaf that changes on the way.
    ///
    /// # Safety
    /// As for [`get`](Index::get); no other thread has seen `record`.
    pub(crate) unsafe fn insert(
        &self,
        record: NonNull<Record>,
        memory: &mut Memory,
        changed: &mut dyn FnMut(LeafChange),
    ) -> Insertion {
        loop {
            if let Some(done) = self.try_insert(record, memory, changed) {
                return done;
            }
            spin_loop();
        }
    }

    fn try_insert(
        &self,
        record: NonNull<Record>,
        memory: &mut Memory,
        changed: &mut dyn FnMut(LeafChange),
    ) -> Option<Insertion> {
        // SAFETY: the record is the caller's.
        let key = unsafe { Record::key(record) };
        let mut parent = None;
        let mut step = self.root()?;
        loop {
            let Step { node, version } = step;
            match kind(node) {
                Kind::Inner(node) => {
                    let place = node.place_of(key)?;
                    let here = Step { node, version };
                    if node.header().count() == INNER_MAX {
                        self.split_inner(parent, here, place, memory)?;
                        return None;
                    }
                    step = self.down(here, place)?;
                    parent = Some((here, place));
                }
                Kind::Leaf(leaf) => {
                    let place = leaf.find(key)?;
                    if place.equal {
                        let exists = leaf.record(place.at)?;
                        return node.is_unchanged(version).then_some(Insertion::Exists(exists));
                    }
                    let here = Step { node: leaf, version };
                    if node.count() == LEAF_MAX {
                        changed(self.split_leaf(parent, here, place.at, key, memory)?);
                        return None;
                    }
                    let mut latch = node.latch(version)?;
                    leaf.insert(place.at, key, record);
                    if !self.faults.has(StoreBug::SilentInsertion) {
                        latch.change();
                    }
                    let (from, to) = latch.versions();
                    changed(LeafChange { leaf: leaf.pointer(), from, to, split: None });
                    return Some(Insertion::Inserted);
                }
            }
        }
    }

    /// Splits a full leaf that was reached through `parent`.
    fn split_leaf(
        &self,
        parent: Option<(Step<'_, Inner>, usize)>,
        full: Step<'_, Leaf>,
        place: usize,
        key: &[u8],
        memory: &mut Memory,
    ) -> Option<LeafChange> {
        let above = Self::latch_parent(parent)?;
        let mut latch = full.node.header().latch(full.version)?;
        latch.change();
        let right = Leaf::allocate(&mut memory.heap);
        // SAFETY: just made.
        let separator = full.node.split(place, key, unsafe { right.as_ref() }, &mut memory.heap);
        self.link(above, full.node.pointer().cast(), separator, right.cast(), &mut memory.heap);
        let (from, to) = latch.versions();
        let split = Some(LeafVersion { leaf: right, version: 0 });
        Some(LeafChange { leaf: full.node.pointer(), from, to, split })
    }

    /// Splits a full inner node that was reached through `parent`.
    fn split_inner(
        &self,
        parent: Option<(Step<'_, Inner>, usize)>,
        full: Step<'_, Inner>,
        place: usize,
        memory: &mut Memory,
    ) -> Option<()> {
        let above = Self::latch_parent(parent)?;
        let mut latch = full.node.header().latch(full.version)?;
        latch.change();
        let (separator, right) = full.node.split(place, &mut memory.heap);
        self.link(above, full.node.pointer().cast(), separator, right.cast(), &mut memory.heap);
        Some(())
    }

    /// Latches the node above one that is about to split. The inner `Option` is empty for a root.
    fn latch_parent<'t>(
        parent: Option<(Step<'t, Inner>, usize)>,
    ) -> Option<Option<(Latch<'t>, Guarded<'t, Inner>, usize)>> {
        let Some((Step { node, version }, place)) = parent else { return Some(None) };
        let mut latch = node.get().header().latch(version)?;
        latch.change();
        Some(Some((latch, node, place)))
    }

    /// Makes `right`, split off from `left`, reachable: from the latched node above, or from a new
    /// root where `left` was the root.
    fn link(
        &self,
        above: Option<(Latch<'_>, Guarded<'_, Inner>, usize)>,
        left: NonNull<Header>,
        separator: NonNull<Separator>,
        right: NonNull<Header>,
        heap: &mut Heap,
    ) {
        match above {
            Some((_latch, parent, place)) => parent.insert(place, separator, right),
            None => {
                // SAFETY: the caller holds its latch.
                let level = unsafe { left.as_ref() }.level() + 1;
                let root = Inner::allocate(heap, level, left);
                // SAFETY: just made.
                unsafe { root.as_ref() }.insert(0, separator, right);
                self.root.store(root.cast().as_ptr(), Ordering::Release);
            }
        }
    }

    /// Takes the record of `key` out if `kill`, called under the leaf's latch, returns
    /// true. Frees what
    /// the index itself no longer needs; the record is the caller's to retire.
    ///
    /// # Safety
    /// As for [`get`](Index::get).
    pub(crate) unsafe fn remove(
        &self,
        key: &[u8],
        memory: &mut Memory,
        kill: &mut dyn FnMut(NonNull<Record>) -> bool,
    ) -> Option<NonNull<Record>> {
        loop {
            if let Some(done) = self.try_remove(key, memory, kill) {
                return done;
            }
            spin_loop();
        }
    }

    fn try_remove(
        &self,
        key: &[u8],
        memory: &mut Memory,
        kill: &mut dyn FnMut(NonNull<Record>) -> bool,
    ) -> Option<Option<NonNull<Record>>> {
        let mut step = self.root()?;
        loop {
            let Step { node, version } = step;
            match kind(node) {
                Kind::Inner(node) => {
                    let here = Step { node, version };
                    if node.header().count() == 0 {
                        self.drop_root(here, memory)?;
                    }
                    let place = node.place_of(key)?;
                    step = self.down(here, place)?;
                    if step.node.count() < SPARSE && self.merge(here, place, memory) {
                        return None;
                    }
                }
                Kind::Leaf(leaf) => {
                    let place = leaf.find(key)?;
                    let mut latch = node.latch(version)?;
                    let record = if place.equal { leaf.record(place.at) } else { None };
                    let Some(record) = record.filter(|record| kill(*record)) else {
                        return Some(None);
                    };
                    leaf.remove(place.at);
                    if !self.faults.has(StoreBug::SilentRemoval) {
                        latch.change();
                    }
                    return Some(Some(record));
                }
            }
        }
    }

    /// Where the root has one child only, makes that child the root. `None` asks to begin again.
    fn drop_root(&self, here: Step<'_, Inner>, memory: &mut Memory) -> Option<()> {
        if self.root.load(Ordering::Acquire) != here.node.pointer().cast().as_ptr() {
            return Some(());
        }
        let mut latch = here.node.header().latch(here.version)?;
        let child = here.node.child(0).expect("an inner node has a child");
        self.root.store(child.as_ptr(), Ordering::Release);
        latch.obsolete();
        memory.retire(Retired::Inner(here.node.pointer()));
        None
    }

    /// Tries to merge the sparse child at `place` with a neighbour, behind it or before it. Returns
    /// whether anything changed.
    fn merge(&self, parent: Step<'_, Inner>, place: usize, memory: &mut Memory) -> bool {
        let before = place.checked_sub(1);
        self.merge_pair(parent, place, memory)
            || before.is_some_and(|at| self.merge_pair(parent, at, memory))
    }

    /// Tries to merge the children at `at` and behind it, if there is one.
    fn merge_pair(&self, parent: Step<'_, Inner>, at: usize, memory: &mut Memory) -> bool {
        if at >= parent.node.header().count() {
            return false;
        }
        let (Some(separator), Some(left), Some(right)) =
            (parent.node.separator(at), parent.node.child(at), parent.node.child(at + 1))
        else {
            return false;
        };
        // SAFETY: kept by the caller's guard.
        let (left, right) = unsafe { (Guarded::new(left), Guarded::new(right)) };
        if !Self::fit(&left, &right) {
            return false;
        }
        let Some((mut above, mut keep, mut gone)) =
            self.latch_family(parent, left.get(), right.get())
        else {
            return false;
        };
        if !Self::fit(&left, &right) {
            return false;
        }
        parent.node.remove(at);
        match (kind(left), kind(right)) {
            (Kind::Leaf(left), Kind::Leaf(right)) => {
                left.merge(&right);
                memory.retire(Retired::Leaf(right.pointer()));
                memory.retire(Retired::Separator(separator));
            }
            (Kind::Inner(left), Kind::Inner(right)) => {
                left.merge(separator, &right);
                memory.retire(Retired::Inner(right.pointer()));
            }
            _ => unreachable!("children of one node stand on one level"),
        }
        above.change();
        if !self.faults.has(StoreBug::SilentMerge) {
            keep.change();
        }
        if !self.faults.has(StoreBug::MergedStaysValid) {
            gone.obsolete();
        }
        true
    }

    /// Two neighbours fit into one node.
    fn fit(left: &Header, right: &Header) -> bool {
        let joined = left.count() + right.count();
        match left.level() {
            0 => joined <= MERGED_LEAF_MAX,
            // The separator between them moves down.
            _ => joined < MERGED_INNER_MAX,
        }
    }

    /// Latches a parent and two neighbouring children.
    fn latch_family<'t>(
        &self,
        parent: Step<'t, Inner>,
        left: &'t Header,
        right: &'t Header,
    ) -> Option<(Latch<'t>, Latch<'t>, Latch<'t>)> {
        let above = parent.node.get().header().latch(parent.version)?;
        // While the parent is latched these are its children, so neither is obsolete.
        let left = left.latch(left.stable_version(self.faults)?)?;
        let right = right.latch(right.stable_version(self.faults)?)?;
        Some((above, left, right))
    }

    /// Visits every record, then frees all nodes. The records are the visitor's.
    ///
    /// # Safety
    /// No thread uses the index any more.
    pub(crate) unsafe fn tear_down(
        &self,
        heap: &mut Heap,
        visit: &mut dyn FnMut(&mut Heap, NonNull<Record>),
    ) {
        let root = NonNull::new(self.root.load(Ordering::Acquire)).expect("there is always a root");
        // SAFETY: the caller's promise; each node is visited once, children first.
        unsafe { Self::tear_down_node(root, heap, visit) };
    }

    unsafe fn tear_down_node(
        node: NonNull<Header>,
        heap: &mut Heap,
        visit: &mut dyn FnMut(&mut Heap, NonNull<Record>),
    ) {
        // SAFETY: see `tear_down`.
        unsafe {
            match kind(Guarded::new(node)) {
                Kind::Leaf(leaf) => {
                    (0..node.as_ref().count())
                        .filter_map(|at| leaf.record(at))
                        .for_each(|record| visit(heap, record));
                    Leaf::free(node.cast(), heap);
                }
                Kind::Inner(inner) => {
                    let count = node.as_ref().count();
                    (0..=count)
                        .filter_map(|at| inner.child(at))
                        .for_each(|child| Self::tear_down_node(child, heap, visit));
                    (0..count)
                        .filter_map(|at| inner.separator(at))
                        .for_each(|separator| Separator::free(separator, heap));
                    Inner::free(node.cast(), heap);
                }
            }
        }
    }
}
