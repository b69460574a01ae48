//! Planted bugs: each disables one piece of validation, so that tests can prove that the checks
//! above it would notice.
//!
//! Without the feature `faults`, which only tests ask for, [`StoreBugs`] is empty and every query of
//! it returns false at compile time.

/// A piece of validation to leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreBug {
    /// Do not compare what was read with what is there at commit.
    SkipReadSet,
    /// Do not compare the scanned leaves' versions at commit.
    SkipNodeSet,
    /// Take a record that another transaction has locked for unchanged.
    SkipLockCheck,
    /// Free unlinked memory at once, while readers may use it.
    FreeTooEarly,
    /// Tag what is unlinked with the era of the guard, not with the one after it.
    TagTooEarly,
    /// Hold a guard in the era that was read before it was shown, without checking whether the era has
    /// advanced meanwhile.
    PinWithoutSecondLook,
    /// Do not look at the parent again once the child's version is noted.
    ParentUnchecked,
    /// Do not look at the root's address again once its version is noted.
    RootUnchecked,
    /// Take a node that is latched for one that is not.
    LatchedIsStable,
    /// Use the result of a lookup in a leaf that has changed meanwhile.
    LookupUnchecked,
    /// Use the result of a scan of a leaf that has changed meanwhile.
    ScanUnchecked,
    /// Insert into a leaf without raising its version.
    SilentInsertion,
    /// Remove from a leaf without raising its version.
    SilentRemoval,
    /// Merge a node into another without raising the version of that one.
    SilentMerge,
    /// Leave a node that was merged away as if it were still in the tree.
    MergedStaysValid,
    /// Do not note the right half of a leaf that the transaction itself split.
    SplitUnnoted,
    /// Use the leaf in which a key was found absent after it was split.
    GapOutlivesSplit,
    /// Do not note the leaf in which a deletion finds no key.
    AbsentDeletionUnnoted,
    /// Do not note that the gap is a placeholder now, which others may fill.
    PlaceholderUnread,
    /// Take a record that has left the index for unchanged.
    DeadIsUnchanged,
    /// Do not look at the record once its entry is in the lookup cache.
    DeadIsCached,
    /// Leave the entries of a record in the lookup cache that leaves the index.
    CachedWhenRemoved,
    /// Do not look again at an entry of the lookup cache that was copied to a larger table.
    CopyUnchecked,
}

/// A set of planted bugs.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreBugs {
    #[cfg(feature = "faults")]
    bits: u32,
}

impl StoreBugs {
    /// The store without planted bugs.
    pub const NONE: StoreBugs = StoreBugs {
        #[cfg(feature = "faults")]
        bits: 0,
    };

    /// Plants one bug.
    #[cfg(feature = "faults")]
    pub fn only(fault: StoreBug) -> StoreBugs {
        StoreBugs { bits: 1 << fault as u32 }
    }

    /// Whether the bug is planted.
    #[inline(always)]
    pub(crate) fn has(self, fault: StoreBug) -> bool {
        #[cfg(feature = "faults")]
        return self.bits & (1 << fault as u32) != 0;
        #[cfg(not(feature = "faults"))]
        {
            let _ = fault;
            false
        }
    }
}
