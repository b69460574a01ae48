//! Planted bugs: each disarms one rule, so that the simulator can prove that its checkers see the
//! loss of it. Those of what all engines share are here, in [`Limits::faults`](crate::execution::Limits::faults); each
//! engine has its own, a set of another type in its options.
//!
//! Without the feature `planted`, which only tests and `shoal/planted` ask for, [`PlantedBugs`] is empty and
//! every question to it is answered *no* at compile time.

use std::marker::PhantomData;

/// A kind of bugs, of which any can be planted.
pub trait Plantable: Copy + 'static {
    /// The place among the bugs of its kind; below 64.
    fn number(self) -> u32;
}

/// One planted bug in what all engines share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// A safe clock ignores what is in flight.
    SafeClockPastInFlight,
    /// Followers let the last to arrive win.
    ReplayInArrivalOrder,
    /// A call that is looked up is said to have had no effect, ignoring its row (exactly once).
    IgnoreRequestRows,
    /// A commit that is asked for is said not to have happened, ignoring its row (exactly once).
    ResolveWithoutRow,
    /// Calls whose sessions were forgotten are run (exactly once).
    ServeForgottenSessions,
    /// All connections are registered under the same serial (one transaction).
    ReuseSerials,
    /// An interactive transaction that was forgotten begins again (exactly once).
    BeginAgain,
    /// A transaction goes on after a write of it failed that no task waits for, and commits without it (atomicity).
    CommitPastFailedWrite,
    /// A leader takes the session numbers of its predecessors for its own (exactly once).
    ReuseSessionNumbers,
    /// A leader draws clocks while its shard is out.
    ServeWhileOut,
    /// A delta is applied to any older version, which need not be its base.
    PatchAnyBase,
    /// A delta is applied to a newer version, too.
    PatchNewer,
    /// What is replayed is applied even where a copy has brought what came after it.
    ReplayBelowFloor,
    /// Replay takes tombstones while older writes may still arrive.
    DropUnreachedTombstones,
    /// A leader serves tables that its configuration does not have yet.
    ServeUnknownTables,
    /// A node passes over the drop of a table, and serves its rows.
    ServeDroppedTables,
    /// A place in which a value is waited for is given to others meanwhile (one transaction).
    ShareSlots,
}

impl Plantable for PlantedBug {
    fn number(self) -> u32 {
        self as u32
    }
}

/// A set of planted bugs of one kind.
#[derive(Debug, Clone, Copy)]
pub struct PlantedBugs<B = PlantedBug> {
    #[cfg(feature = "planted")]
    bits: u64,
    kind: PhantomData<fn(B)>,
}

// A build without the feature has no place where a bug could stand.
#[cfg(not(feature = "planted"))]
const _: () = {
    assert!(size_of::<PlantedBugs>() == 0);
    assert!(!PlantedBugs::<PlantedBug>::NONE.has(PlantedBug::IgnoreRequestRows));
};

impl<B: Plantable> PlantedBugs<B> {
    /// No bug.
    pub const NONE: PlantedBugs<B> = PlantedBugs {
        #[cfg(feature = "planted")]
        bits: 0,
        kind: PhantomData,
    };

    /// Exactly this bug.
    #[cfg(feature = "planted")]
    pub fn only(fault: B) -> PlantedBugs<B> {
        assert!(fault.number() < u64::BITS, "a set has no place for so many bugs");
        PlantedBugs { bits: 1 << fault.number(), kind: PhantomData }
    }

    /// Is the bug planted?
    #[cfg(feature = "planted")]
    #[inline(always)]
    pub fn has(self, fault: B) -> bool {
        self.bits & (1 << fault.number()) != 0
    }

    /// Is the bug planted? In this build none can be.
    #[cfg(not(feature = "planted"))]
    #[inline(always)]
    pub const fn has(self, _fault: B) -> bool {
        false
    }
}

impl<B: Plantable> Default for PlantedBugs<B> {
    fn default() -> PlantedBugs<B> {
        PlantedBugs::NONE
    }
}
