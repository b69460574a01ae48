//! Planted bugs: each disarms one piece of validation, so that tests can prove that the checks which
//! stand above it would notice its loss.
//!
//! Without the feature `faults`, which only tests ask for, [`Faults`] is empty and every question to
//! it is answered *no* at compile time.

/// One planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Do not compare what was read with what is there at commit.
    SkipReadSet,
    /// Do not compare the scanned leaves' versions at commit.
    SkipNodeSet,
    /// Take a record that another transaction has locked for unchanged.
    SkipLockCheck,
    /// Free what is unlinked at once, under the readers' eyes.
    FreeTooEarly,
}

/// A set of planted bugs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    #[cfg(feature = "faults")]
    bits: u32,
}

impl Faults {
    /// No bug.
    pub const NONE: Faults = Faults {
        #[cfg(feature = "faults")]
        bits: 0,
    };

    /// Exactly this bug.
    #[cfg(feature = "faults")]
    pub fn only(fault: Fault) -> Faults {
        Faults { bits: 1 << fault as u32 }
    }

    /// Is the bug planted?
    #[inline(always)]
    pub(crate) fn has(self, fault: Fault) -> bool {
        #[cfg(feature = "faults")]
        return self.bits & (1 << fault as u32) != 0;
        #[cfg(not(feature = "faults"))]
        {
            let _ = fault;
            false
        }
    }
}
