//! A version: one value of a key, or its absence, and the stamp of the transaction that wrote it.
//!
//! ```text
//! | prev 8 | clock 8 | epoch 4 | shape 4 | value … | padding | remote clocks 16 each … |
//! prev:  | address of the next older version, or null | level 3 |
//! shape: | value length 24 | tombstone 1 | remote clocks 7 |
//! ```
//! A version is written by one transaction, published by storing its address in the record, and
//! then never changes but for `prev`, which only the holder of the record's lock changes: trimming cuts
//! it, and what is rolled back is skipped. Newer versions stand in front of older.
//!
//! Invariant: along a chain (epoch, clock) strictly decreases.

use crate::change::Delta;
use crate::guarded::Guarded;
use crate::memory::Heap;
use crate::sync::{AtomicPtr, Ordering};
use shoal_types::limits::VALUE_BYTES_MAX;
use shoal_types::{Clock, Epoch, RemoteClock, StampRef};
use std::ptr::{self, NonNull};

/// The most remote clocks that one version holds.
pub(crate) const REMOTE_MAX: usize = 127;

const LENGTH_BITS: u32 = 24;
const TOMBSTONE: u32 = 1 << LENGTH_BITS;
const REMOTE_SHIFT: u32 = LENGTH_BITS + 1;

const _: () = assert!(align_of::<Version>() > Version::LEVEL_MAX as usize);
const _: () = assert!(VALUE_BYTES_MAX < 1 << LENGTH_BITS);
const _: () = assert!(REMOTE_MAX < 1 << (32 - REMOTE_SHIFT));

/// A version as a reader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRef<'a> {
    /// The value, or `None` for a tombstone.
    pub value: Option<&'a [u8]>,
    /// The stamp of the transaction that wrote it.
    pub stamp: StampRef<'a>,
}

impl<'a> VersionRef<'a> {
    /// What a guard keeps.
    pub(crate) fn of(version: Guarded<'a, Version>) -> VersionRef<'a> {
        VersionRef { value: version.value(), stamp: version.stamp_ref() }
    }
}

/// A version of a key: its stamp, and its value if it has one.
#[repr(C, align(8))]
pub(crate) struct Version {
    prev: AtomicPtr<Version>,
    clock: Clock,
    epoch: Epoch,
    shape: u32,
}

/// The content of a new version.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    Value(&'a [u8]),
    Tombstone,
}

impl Version {
    /// A private version, not yet stamped.
    pub(crate) fn allocate(heap: &mut Heap, content: Content<'_>) -> NonNull<Version> {
        let stamp = StampRef { epoch: Epoch::default(), clock: Clock::ZERO, remote: &[] };
        Self::stamped(heap, content, stamp)
    }

    /// A private version with this stamp.
    ///
    /// # Panics
    /// As for [`stamp`](Version::stamp).
    pub(crate) fn stamped(
        heap: &mut Heap,
        content: Content<'_>,
        stamp: StampRef<'_>,
    ) -> NonNull<Version> {
        let StampRef { epoch, clock, remote } = stamp;
        assert!(remote.len() <= REMOTE_MAX, "a stamp with {} remote clocks", remote.len());
        let (shape, value) = match content {
            Content::Value(value) => (value.len() as u32, value),
            Content::Tombstone => (TOMBSTONE, &[][..]),
        };
        Self::build(heap, shape, value, epoch, clock, remote)
    }

    /// A private version with this stamp: that of `base`, changed.
    ///
    /// # Panics
    /// As for [`stamp`](Version::stamp); and if this is no base of the delta.
    pub(crate) fn patched(
        heap: &mut Heap,
        base: Guarded<'_, Version>,
        delta: Delta<&[u8]>,
        stamp: StampRef<'_>,
    ) -> NonNull<Version> {
        let value = base.value().expect("M6: a delta has a tombstone as its base");
        let version = Self::stamped(heap, Content::Value(value), stamp);
        // SAFETY: private, and built with so many bytes behind the header.
        delta.apply(unsafe {
            std::slice::from_raw_parts_mut(value_start(version).as_ptr(), value.len())
        });
        version
    }

    fn build(
        heap: &mut Heap,
        shape: u32,
        value: &[u8],
        epoch: Epoch,
        clock: Clock,
        remote: &[RemoteClock],
    ) -> NonNull<Version> {
        let shape = shape | (remote.len() as u32) << REMOTE_SHIFT;
        let version = heap.allocate(bytes(shape)).cast::<Version>();
        // SAFETY: the block is fresh, aligned and as long as `bytes(shape)` says: header, value and
        // remote clocks fit, one after the other.
        unsafe {
            version.write(Version { prev: AtomicPtr::new(ptr::null_mut()), clock, epoch, shape });
            ptr::copy_nonoverlapping(value.as_ptr(), value_start(version).as_ptr(), value.len());
            let target = version.byte_add(remote_offset(shape)).cast::<RemoteClock>();
            ptr::copy_nonoverlapping(remote.as_ptr(), target.as_ptr(), remote.len());
        }
        version
    }

    /// Stamps a private version; moves it where remote clocks need room.
    ///
    /// # Safety
    /// No other thread has seen `version`.
    ///
    /// # Panics
    /// If the stamp has more remote clocks than a version can hold: the engine bounds them.
    pub(crate) unsafe fn stamp(
        version: NonNull<Version>,
        heap: &mut Heap,
        stamp: StampRef<'_>,
    ) -> NonNull<Version> {
        assert!(
            stamp.remote.len() <= REMOTE_MAX,
            "a stamp with {} remote clocks",
            stamp.remote.len()
        );
        if stamp.remote.is_empty() {
            // SAFETY: private, by the caller's promise.
            unsafe {
                (*version.as_ptr()).epoch = stamp.epoch;
                (*version.as_ptr()).clock = stamp.clock;
            }
            return version;
        }
        // SAFETY: private, by the caller's promise; the old block is not used after it is freed.
        unsafe {
            let old = Guarded::new(version);
            let moved =
                Self::build(heap, old.shape, old.bytes(), stamp.epoch, stamp.clock, stamp.remote);
            Self::free(version, heap);
            moved
        }
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// No reader can reach `version` any more.
    pub(crate) unsafe fn free(version: NonNull<Version>, heap: &mut Heap) {
        // SAFETY: allocated in `build` with this size, and unreachable now.
        unsafe {
            let size = bytes(version.as_ref().shape);
            heap.free(version.cast(), size);
        }
    }

    /// What the version was allocated with, header and stamp included.
    #[inline]
    pub(crate) fn bytes_taken(&self) -> usize {
        bytes(self.shape)
    }

    /// Whether the version is a tombstone.
    #[inline]
    pub(crate) fn is_tombstone(&self) -> bool {
        self.shape & TOMBSTONE != 0
    }

    /// The greatest level: what fits beside an address.
    pub(crate) const LEVEL_MAX: u8 = 7;

    /// The next older version, or null.
    pub(crate) fn prev(&self) -> *mut Version {
        self.prev.load(Ordering::Acquire).map_addr(|word| word & !usize::from(Self::LEVEL_MAX))
    }

    /// How seldom the chain from this version on is walked: see `transaction/commit.rs`.
    pub(crate) fn level(&self) -> u8 {
        self.prev.load(Ordering::Acquire).addr() as u8 & Self::LEVEL_MAX
    }

    /// Links an older chain behind this version, or cuts it off.
    pub(crate) fn set_prev(&self, prev: *mut Version) {
        self.set_prev_at(prev, 0);
    }

    /// The same, at a level.
    pub(crate) fn set_prev_at(&self, prev: *mut Version, level: u8) {
        debug_assert!(level <= Self::LEVEL_MAX, "level {level}");
        let word = prev.map_addr(|address| address | usize::from(level));
        self.prev.store(word, Ordering::Release);
    }
}

/// What lies behind the header.
impl<'g> Guarded<'g, Version> {
    /// The value, or `None` for a tombstone.
    #[inline]
    pub(crate) fn value(self) -> Option<&'g [u8]> {
        (!self.is_tombstone()).then(|| self.bytes())
    }

    #[inline]
    fn bytes(self) -> &'g [u8] {
        let length = (self.shape & (TOMBSTONE - 1)) as usize;
        // SAFETY: `build` wrote that many bytes behind the header, and nothing changes them.
        unsafe { std::slice::from_raw_parts(value_start(self.pointer()).as_ptr(), length) }
    }

    /// The stamp of the transaction that wrote this version.
    pub(crate) fn stamp_ref(self) -> StampRef<'g> {
        let count = (self.shape >> REMOTE_SHIFT) as usize;
        // SAFETY: `build` wrote that many clocks at that offset, and nothing changes them.
        let remote = unsafe {
            let first = self.pointer().byte_add(remote_offset(self.shape)).cast::<RemoteClock>();
            std::slice::from_raw_parts(first.as_ptr(), count)
        };
        StampRef { epoch: self.epoch, clock: self.clock, remote }
    }
}

fn value_start(version: NonNull<Version>) -> NonNull<u8> {
    // SAFETY: one header further is inside the block or one past its end.
    unsafe { version.add(1).cast() }
}

fn remote_offset(shape: u32) -> usize {
    let length = (shape & (TOMBSTONE - 1)) as usize;
    (size_of::<Version>() + length).next_multiple_of(align_of::<RemoteClock>())
}

fn bytes(shape: u32) -> usize {
    remote_offset(shape) + (shape >> REMOTE_SHIFT) as usize * size_of::<RemoteClock>()
}
