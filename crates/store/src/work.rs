//! Counters of work, so that tests can bound how much an operation does, on a machine that is busy
//! with. They count in this crate's own tests only.

#[cfg(all(test, not(feature = "model")))]
mod tests;

/// What is counted, one counter each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A whole key was compared in a node of the index, or in the order of a transaction's own writes.
    KeyCompared,
    /// A slot or an entry of a transaction's node set or write set was looked at.
    SetProbed,
    /// A version of a chain was looked at by the transaction that installs over it.
    VersionVisited,
}

#[cfg(test)]
std::thread_local! {
    static COUNTS: std::cell::Cell<[u64; 3]> = const { std::cell::Cell::new([0; 3]) };
}

/// Counts one piece of work.
#[inline(always)]
pub(crate) fn count(work: Work) {
    #[cfg(test)]
    COUNTS.with(|counts| {
        let mut now = counts.get();
        now[work as usize] += 1;
        counts.set(now);
    });
    #[cfg(not(test))]
    let _ = work;
}

/// The amount of work of this kind that `run` does on this thread.
#[cfg(all(test, not(feature = "model")))]
pub(crate) fn counted(work: Work, run: impl FnOnce()) -> u64 {
    let now = || COUNTS.with(|counts| counts.get()[work as usize]);
    let before = now();
    run();
    now() - before
}
